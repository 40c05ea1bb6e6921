/** The frame of a page: its one heading (which gets the focus when the page comes), what it is for, its actions. */
import { Group, Stack, Text, Title } from "@mantine/core";
import { useEffect, useRef, type ReactNode } from "react";
import { visible } from "./words";

interface Props {
  title: string;
  about?: ReactNode;
  actions?: ReactNode;
  children: ReactNode;
}

let first = true;

export function Page({ title, about, actions, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${visible(title)} · Sallyport`;
  }, [title]);
  useEffect(() => {
    // the first page is the browser's to announce
    if (first) first = false;
    else heading.current?.focus({ preventScroll: true });
  }, []);
  return (
    <Stack gap="md" className="page">
      <Group justify="space-between" align="flex-start" gap="sm">
        <div className="page-head">
          <Title order={1} size="h2" tabIndex={-1} ref={heading} className="page-title">
            <bdi>{visible(title)}</bdi>
          </Title>
          {about ? <Text c="dimmed" component="div">{about}</Text> : null}
        </div>
        {actions ? <Group gap="xs">{actions}</Group> : null}
      </Group>
      {children}
    </Stack>
  );
}
