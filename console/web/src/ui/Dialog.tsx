/** A dialog that is there as long as it is drawn; the focus goes back to what opened it, also when it is taken away whole. */
import { Modal } from "@mantine/core";
import { useEffect, type ReactNode } from "react";

interface Props {
  title: string;
  children: ReactNode;
  onClose: () => void;
  /** Whether a click beside it closes it; not where something is shown once. */
  lasting?: boolean;
  /** Whether there is a table in it. */
  wide?: boolean;
}

export function Dialog({ title, children, onClose, lasting = false, wide = false }: Props) {
  useEffect(() => {
    const before = document.activeElement;
    return () => {
      // after the dialog is out of the page
      requestAnimationFrame(() => {
        if (document.activeElement === document.body && before instanceof HTMLElement) before.focus({ preventScroll: true });
      });
    };
  }, []);
  return <Modal opened size={wide ? "xl" : "md"} onClose={onClose} title={title} centered closeOnClickOutside={!lasting} returnFocus={false}>{children}</Modal>;
}
