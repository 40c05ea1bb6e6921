/** A question before something that cannot be undone; stays open with the problem if it was not done. */
import { Button, Group, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Dialog } from "./Dialog";
import { ProblemAlert } from "./ProblemAlert";

interface Props {
  title: string;
  children: ReactNode;
  /** What the button says: the deed, not "OK". */
  deed: string;
  pending: boolean;
  error: unknown;
  onConfirm: () => void;
  onClose: () => void;
}

export function Confirm({ title, children, deed, pending, error, onConfirm, onClose }: Props) {
  return (
    <Dialog title={title} onClose={onClose}>
      <Stack>
        <Text component="div">{children}</Text>
        <ProblemAlert error={error} />
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose} data-autofocus>Cancel</Button>
          <Button color="red" onClick={onConfirm} loading={pending}>{deed}</Button>
        </Group>
      </Stack>
    </Dialog>
  );
}
