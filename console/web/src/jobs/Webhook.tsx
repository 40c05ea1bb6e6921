/** The webhook of a job: an address with a secret in it, shown once; whoever has it runs the job. */
import { Alert, Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { Confirm } from "../ui/Confirm";
import { Dialog } from "../ui/Dialog";
import { ProblemAlert } from "../ui/ProblemAlert";
import { Secret } from "../ui/Secret";
import { useWorkspaceId } from "../ui/workspace";
import { Part } from "./JobForm";

type Job = Schemas["JobView"];

export function Webhook({ job }: { job: Job }) {
  const [asking, setAsking] = useState<"new" | "end" | null>(null);
  const path = { workspace: useWorkspaceId(), job: job.id };
  const queries = useQueryClient();
  // what is typed into the form beside it stays
  const now = (has: boolean) => queries.setQueryData<Job>(["job", path.workspace, job.id], (before) => (before ? { ...before, has_webhook: has } : before));
  const add = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/jobs/{job}/webhook", { params: { path } })),
    onSuccess: () => {
      setAsking(null);
      now(true);
    },
    gcTime: 0,
  });
  const end = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/workspaces/{workspace}/jobs/{job}/webhook", { params: { path } })),
    onSuccess: () => {
      setAsking(null);
      now(false);
    },
  });
  return (
    <Part title="Webhook" about="An address that starts this job when something sends a POST to it.">
      <Text size="sm">{job.has_webhook ? "This job has a webhook. Its address was shown when it was made." : "This job has none."}</Text>
      {asking === null ? <ProblemAlert error={add.error} /> : null}
      <Group>
        <Button variant="default" loading={add.isPending} onClick={() => (job.has_webhook ? setAsking("new") : add.mutate())}>{job.has_webhook ? "Make another address" : "Make a webhook"}</Button>
        {job.has_webhook ? <Button variant="default" onClick={() => setAsking("end")}>Take it away</Button> : null}
      </Group>
      {asking === "new" ? (
        <Confirm title="Make another address?" deed="Make it" pending={add.isPending} error={add.error} onConfirm={() => add.mutate()} onClose={() => setAsking(null)}>
          The address that is in use is over at once.
        </Confirm>
      ) : null}
      {asking === "end" ? (
        <Confirm title="Take the webhook away?" deed="Take it away" pending={end.isPending} error={end.error} onConfirm={() => end.mutate()} onClose={() => setAsking(null)}>
          Whoever uses its address starts this job no more.
        </Confirm>
      ) : null}
      {add.data ? (
        <Dialog title="The webhook's address" onClose={() => add.reset()} lasting>
          <Stack>
            <Alert color="yellow" title="It is shown this once">Whoever has it starts this job, and can do nothing else.</Alert>
            <Secret text={add.data.url} label="address" />
            <Group justify="flex-end"><Button onClick={() => add.reset()}>Done</Button></Group>
          </Stack>
        </Dialog>
      ) : null}
    </Part>
  );
}
