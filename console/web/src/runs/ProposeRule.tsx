/** "Propose rule": the lines that would permit what was denied; also into the job's own list of domains or policy. */
import { Button, Group, Select, Stack, Text } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, take } from "../api/client";
import { Propose } from "../policy/Propose";
import { choices, inForce, useSources } from "../policy/sources";
import { Dialog } from "../ui/Dialog";
import { ProblemAlert } from "../ui/ProblemAlert";
import { Secret } from "../ui/Secret";
import { told } from "../ui/told";
import { visible } from "../ui/words";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { opened, proposal, withRule, type Denied } from "./propose";

export function ProposeRule({ denied, job, onClose }: { denied: Denied; job: string | null; onClose: () => void }) {
  return (
    <Dialog title="Propose a rule" onClose={onClose}>
      <Stack>
        <Text size="sm">What runs in a sandbox chose this destination. Permit it only if you know why it is needed. In a policy:</Text>
        <Secret text={proposal(denied)} label="rule" />
        {job !== null ? <AddToJob job={job} denied={denied} onDone={onClose} /> : null}
        <InGit denied={denied} />
        <Group justify="flex-end"><Button variant="default" onClick={onClose}>Close</Button></Group>
      </Stack>
    </Dialog>
  );
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

/** The same as a branch of a policy in git, where there are some that take proposals. */
function InGit({ denied }: { denied: Denied }) {
  const workspace = useWorkspaceId();
  const sources = useSources(workspace);
  const all = choices(sources.data?.items ?? []);
  const [chosen, setChosen] = useState<string | null>(null);
  const choice = all[Number(chosen ?? "0")];
  const text = useQuery({ ...inForce(workspace, choice?.source ?? "", choice?.policy ?? ""), enabled: choice !== undefined });
  if (!choice) return null;
  const changed = text.data ? withRule(text.data.text, denied) : null;
  return (
    <Stack gap="xs">
      <Select label="Or in a policy in git" allowDeselect={false} value={chosen ?? "0"} onChange={setChosen}
        data={all.map((one, index) => ({ value: String(index), label: `${visible(one.policy)} (${visible(one.source)}: ${visible(one.file)})` }))} />
      <ProblemAlert error={text.error} />
      {text.data && changed === null ? <Text size="sm">Its list is written in a way that is yours to edit: open it on the page of policies.</Text> : null}
      {changed === null ? null : <Propose key={`${choice.source} ${choice.file}`} choice={choice} text={changed} title={`Allow ${visible(denied.name ?? denied.address ?? "")}`.slice(0, 150)} />}
    </Stack>
  );
}
