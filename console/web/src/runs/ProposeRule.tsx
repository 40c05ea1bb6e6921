/** "Propose rule": the lines that would permit what was denied; for a job that lists domains, also into its list. */
import { Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, take } from "../api/client";
import { Dialog } from "../ui/Dialog";
import { ProblemAlert } from "../ui/ProblemAlert";
import { Secret } from "../ui/Secret";
import { told } from "../ui/told";
import { visible } from "../ui/words";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { proposal, type Denied } from "./propose";

export function ProposeRule({ denied, job, onClose }: { denied: Denied; job: string | null; onClose: () => void }) {
  return (
    <Dialog title="Propose a rule" onClose={onClose}>
      <Stack>
        <Text size="sm">What runs in a sandbox chose this destination. Permit it only if you know why it is needed. In a policy:</Text>
        <Secret text={proposal(denied)} label="rule" />
        {job !== null && denied.name ? <AddToJob job={job} name={denied.name} onDone={onClose} /> : null}
        <Group justify="flex-end"><Button variant="default" onClick={onClose}>Close</Button></Group>
      </Stack>
    </Dialog>
  );
}

function AddToJob({ job: id, name, onDone }: { job: string; name: string; onDone: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const path = { workspace, job: id };
  const job = useQuery({ queryKey: ["job", workspace, id], queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/jobs/{job}", { params: { path } })), retry: false });
  const add = useMutation({
    mutationFn: async () => {
      const { data } = job;
      if (!data) return;
      const domains = [...(data.spec.network?.domains ?? []), name.toLowerCase()];
      await take(api.PUT("/api/v1/workspaces/{workspace}/jobs/{job}", {
        params: { path, header: { "If-Match": `"${data.version}"` } },
        body: { name: data.name, enabled: data.enabled, spec: { ...data.spec, network: { ...data.spec.network, domains } } },
      }));
    },
    onSuccess: () => {
      told(`${visible(name)} is allowed from the next run on.`);
      onDone();
      return queries.invalidateQueries({ queryKey: ["job", workspace, id] });
    },
  });
  const network = job.data?.spec.network;
  if (network?.mode !== "domains" || network.policy || network.policy_name) return null;
  return (
    <Stack gap="xs">
      <Text size="sm">Or add it to the allowed domains of <Words>{job.data?.name ?? ""}</Words>, with the ports of the web:</Text>
      <ProblemAlert error={add.error} />
      <Group><Button loading={add.isPending} onClick={() => add.mutate()}>Allow in this job</Button></Group>
    </Stack>
  );
}
