/** Runs a job now; where it takes input, asks for it first. Leads to the run. */
import { Button, Group, Stack, Textarea } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { Dialog } from "../ui/Dialog";
import { ProblemAlert } from "../ui/ProblemAlert";
import { visible } from "../ui/words";
import { useWorkspaceId } from "../ui/workspace";

export function RunNow({ job, compact = false }: { job: Schemas["JobView"]; compact?: boolean }) {
  const workspace = useWorkspaceId();
  const navigate = useNavigate();
  const queries = useQueryClient();
  const [asking, setAsking] = useState(false);
  const [input, setInput] = useState("");
  const run = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/jobs/{job}/runs", {
      params: { path: { workspace, job: job.id } },
      body: job.spec.input === true ? { input } : {},
    })),
    onSuccess: async (made) => {
      void queries.invalidateQueries({ queryKey: ["runs", workspace] });
      await navigate({ to: "/w/$workspace/runs/$run", params: { workspace, run: made.id } });
    },
    onError: () => setAsking(true),
  });
  const begin = () => {
    if (job.spec.input === true) setAsking(true);
    else run.mutate();
  };
  return (
    <>
      <Button size={compact ? "compact-sm" : "sm"} variant={compact ? "default" : "filled"} loading={run.isPending} onClick={begin}
        {...(compact ? { "aria-label": `Run ${visible(job.name)} now` } : {})}>
        Run now
      </Button>
      {asking ? (
        <Dialog title="Run now" onClose={() => setAsking(false)}>
          <Stack>
            {job.spec.input === true ? (
              <Textarea label="Input" description="What the command reads on its standard input" autosize minRows={3} maxRows={16} data-autofocus classNames={{ input: "mono" }} value={input}
                error={wrongField(run.error, "input")} onChange={(event) => setInput(event.currentTarget.value)} />
            ) : null}
            <ProblemAlert error={run.error} shown={["input"]} />
            <Group justify="flex-end">
              <Button variant="default" onClick={() => setAsking(false)}>Cancel</Button>
              <Button loading={run.isPending} onClick={() => run.mutate()}>Run</Button>
            </Group>
          </Stack>
        </Dialog>
      ) : null}
    </>
  );
}
