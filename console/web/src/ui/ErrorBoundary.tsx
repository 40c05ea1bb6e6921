/** What is shown when drawing a page fails: that it failed, and a way on. Nothing is sent anywhere. */
import { Button, Container, Group, Stack } from "@mantine/core";
import { Component, type ReactNode } from "react";
import { ProblemAlert } from "./ProblemAlert";

export class ErrorBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: Error) {
    return { error };
  }

  override render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return <Failed error={error} onRetry={() => this.setState({ error: null })} />;
  }
}

export function Failed({ error, onRetry }: { error: unknown; onRetry: () => void }) {
  return (
    <Container size="sm" py="xl">
      <Stack>
        <ProblemAlert error={error} />
        <Group>
          <Button onClick={onRetry}>Try again</Button>
          <Button variant="default" onClick={() => location.reload()}>Reload</Button>
        </Group>
      </Stack>
    </Container>
  );
}
