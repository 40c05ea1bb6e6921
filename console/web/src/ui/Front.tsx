/** The frame of pages that are seen by nobody who is signed in. */
import { Center, Paper, Stack, Text, Title } from "@mantine/core";
import { useEffect, type ReactNode } from "react";
import { Mark } from "./Mark";

export function Front({ title, about, children }: { title: string; about?: ReactNode; children: ReactNode }) {
  useEffect(() => {
    document.title = `${title} · Sallyport`;
  }, [title]);
  return (
    <Center component="main" mih="100vh" p="md">
      <Paper withBorder p="xl" w="100%" maw={440} shadow="sm">
        <Stack gap="lg">
          <Stack gap={4}>
            <Mark />
            <Title order={1} size="h3" mt="sm">{title}</Title>
            {about ? <Text c="dimmed" size="sm" component="div">{about}</Text> : null}
          </Stack>
          {children}
        </Stack>
      </Paper>
    </Center>
  );
}
