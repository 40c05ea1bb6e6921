/** What went wrong: what, what to do about it, and the id to look for in the console's log. */
import { Alert, Button, Code, Group, List, Text } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import { ApiError, problemOf } from "../api/client";
import { Words } from "./Words";

interface Props {
  error: unknown;
  /** Fields whose mistakes are shown beside them already. */
  shown?: string[];
  onRetry?: () => void;
}

export function ProblemAlert({ error, shown = [], onRetry }: Props) {
  if (error === null || error === undefined) return null;
  const problem = problemOf(error);
  const rest = (problem.fields ?? []).filter((wrong) => !shown.includes(wrong.field));
  // beside the fields stands all there is to say
  if (problem.code === "invalid" && rest.length === 0 && (problem.fields ?? []).length > 0) return null;
  const id = error instanceof ApiError && problem.status >= 500 ? error.requestId : null;
  return (
    <Alert color="red" role="alert" icon={<IconAlertTriangle aria-hidden />} title={sentence(problem.detail)}>
      {problem.help ? <Text size="sm"><Words most={600}>{sentence(problem.help)}</Words></Text> : null}
      {rest.length > 0 ? (
        <List size="sm">
          {rest.map((wrong) => (
            <List.Item key={wrong.field}>
              <Words>{`${wrong.field}: ${wrong.message}`}</Words>
            </List.Item>
          ))}
        </List>
      ) : null}
      {id ? <Text size="sm">Request <Code>{id}</Code></Text> : null}
      {onRetry ? (
        <Group mt="xs">
          <Button size="xs" variant="default" onClick={onRetry}>Try again</Button>
        </Group>
      ) : null}
    </Alert>
  );
}

/** As a sentence begins; the API's texts are parts of log lines, too. */
export function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
