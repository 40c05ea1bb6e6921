/** "Why?": what would become of a destination under a network setting, which line says so, and what would change it. */
import { Button, Group, Paper, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { Decision } from "../jobs/ReachTable";
import { ProblemAlert, sentence } from "../ui/ProblemAlert";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

export function ExplainBox({ network }: { network: Schemas["NetworkSpec"] }) {
  const workspace = useWorkspaceId();
  const [destination, setDestination] = useState("");
  const explain = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/policies/explain", { params: { path: { workspace } }, body: { network, destination: destination.trim() } })),
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    explain.mutate();
  };
  return (
    <Stack gap="xs">
      <form onSubmit={submit}>
        <Group align="flex-end" gap="xs">
          <TextInput label="Would this be reached?" placeholder="example.com:443, 10.0.0.1:22 or https://example.com/path" required flex={1} miw={220} value={destination}
            error={wrongField(explain.error, "destination")} onChange={(event) => setDestination(event.currentTarget.value)} />
          <Button type="submit" variant="default" loading={explain.isPending}>Explain</Button>
        </Group>
      </form>
      <ProblemAlert error={explain.error} shown={["destination"]} />
      {explain.data ? (
        <Paper withBorder p="sm" role="status" aria-label="Explanation">
          <Group gap="xs"><Decision word={explain.data.decision} />{explain.data.reason ? <Text size="sm" className="mono">{explain.data.reason}</Text> : null}{explain.data.rule ? <Text size="sm" className="mono"><Words>{explain.data.rule}</Words></Text> : null}</Group>
          <Text size="sm" mt={4}><Words most={1000}>{sentence(explain.data.summary)}</Words></Text>
          {explain.data.change ? <Text size="sm" c="dimmed"><Words most={1000}>{sentence(explain.data.change)}</Words></Text> : null}
        </Paper>
      ) : null}
    </Stack>
  );
}
