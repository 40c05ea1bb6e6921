/** "Propose rule": the lines that would permit what was denied; also into the job's own list of domains or policy. */
import { Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, take, type Schemas } from "../api/client";
import { Dialog } from "../ui/Dialog";
import { ProblemAlert } from "../ui/ProblemAlert";
import { Secret } from "../ui/Secret";
import { told } from "../ui/told";
import { visible } from "../ui/words";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { proposal, withRule, type Denied } from "./propose";

export function ProposeRule({ denied, job, onClose }: { denied: Denied; job: string | null; onClose: () => void }) {
  return (
    <Dialog title="Propose a rule" onClose={onClose}>
      <Stack>
        <Text size="sm">What runs in a sandbox chose this destination. Permit it only if you know why it is needed. In a policy:</Text>
        <Secret text={proposal(denied)} label="rule" />
        {job !== null ? <AddToJob job={job} denied={denied} onDone={onClose} /> : null}
        <Group justify="flex-end"><Button variant="default" onClick={onClose}>Close</Button></Group>
      </Stack>
    </Dialog>
  );
}

/** The job's network with what was denied; nothing where a person must write it. */
function opened(network: Schemas["NetworkSpec"] | null | undefined, denied: Denied): Schemas["NetworkSpec"] | null {
  if (typeof network?.policy === "string") {
    const policy = withRule(network.policy, denied);
    return policy === null ? null : { ...network, policy };
  }
  if (network?.mode !== "domains" || network.policy_name || !denied.name) return null;
  return { ...network, domains: [...(network.domains ?? []), denied.name.toLowerCase()] };
}

function AddToJob({ job: id, denied, onDone }: { job: string; denied: Denied; onDone: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const path = { workspace, job: id };
  const job = useQuery({ queryKey: ["job", workspace, id], queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/jobs/{job}", { params: { path } })), retry: false });
  const network = opened(job.data?.spec.network, denied);
  const add = useMutation({
    mutationFn: async () => {
      const { data } = job;
      if (!data || !network) return;
      await take(api.PUT("/api/v1/workspaces/{workspace}/jobs/{job}", {
        params: { path, header: { "If-Match": `"${data.version}"` } },
        body: { name: data.name, enabled: data.enabled, spec: { ...data.spec, network } },
      }));
    },
    onSuccess: () => {
      told(`${visible(denied.name ?? denied.address ?? "")} is allowed from the next run on.`);
      onDone();
      return queries.invalidateQueries({ queryKey: ["job", workspace, id] });
    },
  });
  if (!network) return null;
  const where = network.policy ? "the policy" : "the allowed domains";
  return (
    <Stack gap="xs">
      <Text size="sm">Or add it to {where} of <Words>{job.data?.name ?? ""}</Words>{network.policy ? ":" : ", with the ports of the web:"}</Text>
      <ProblemAlert error={add.error} />
      <Group><Button loading={add.isPending} onClick={() => add.mutate()}>Allow in this job</Button></Group>
    </Stack>
  );
}
