/** Nothing here yet: what would be here, and how it gets here. */
import { Paper, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <Paper withBorder p="xl" className="empty">
      <Stack gap="xs" align="center">
        <Text fw={600}>{title}</Text>
        {children ? <Text c="dimmed" ta="center" component="div" maw={560}>{children}</Text> : null}
      </Stack>
    </Paper>
  );
}
