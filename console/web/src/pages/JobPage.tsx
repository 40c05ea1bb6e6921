/** One job, made or changed: its form, what it reaches, its last runs. */
import { Button, Group, Stack, Switch, TagsInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useMemo, useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { Limits, Network, Part, What, When } from "../jobs/JobForm";
import { Notify } from "../jobs/Notify";
import { ReachTable } from "../jobs/ReachTable";
import { RunNow } from "../jobs/RunNow";
import { Webhook } from "../jobs/Webhook";
import { EMPTY, toDraft, toSpec, type Draft } from "../jobs/spec";
import { PolicyText } from "../policy/PolicyText";
import { RunList } from "../runs/RunList";
import { Confirm } from "../ui/Confirm";
import { Loaded } from "../ui/Loaded";
import { Page } from "../ui/Page";
import { ProblemAlert } from "../ui/ProblemAlert";
import { told } from "../ui/told";
import { useWorkspaceId } from "../ui/workspace";

type Job = Schemas["JobView"];

/** Fields whose mistakes stand beside them. */
const SHOWN = ["description", "command", "image", "workdir", "env", "isolation", "network.mode", "network.allow_private", "network.domains", "network.policy", "limits.timeout_seconds",
  "limits.memory_mib", "limits.cpu_millis", "limits.pids", "schedule.cron", "schedule.timezone", "overlap.rule", "overlap.most", "overlap.group", "retry.most", "retry.on",
  "retry.wait_seconds", "secrets", "notify.to"].map((field) => `spec.${field}`);

export function NewJobPage() {
  return (
    <Page title="Make a job" about="What runs in a sandbox, and what it may reach.">
      <JobForm job={null} />
    </Page>
  );
}

export function JobPage() {
  const workspace = useWorkspaceId();
  const { job: id } = useParams({ strict: false });
  const job = useQuery({
    queryKey: ["job", workspace, id],
    queryFn: () => take(api.GET("/api/v1/workspaces/{workspace}/jobs/{job}", { params: { path: { workspace, job: id ?? "" } } })),
  });
  return (
    <Page title={job.data?.name ?? "Job"} about={job.data?.spec.description ?? ""} actions={job.data?.enabled ? <RunNow job={job.data} /> : null}>
      <Loaded query={job}>
        {(data) => (
          <>
            <Part title="Last runs"><RunList filter={{ job: data.id }} short /></Part>
            <JobForm key={data.version} job={data} />
            <Webhook job={data} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

function JobForm({ job }: { job: Job | null }) {
  const workspace = useWorkspaceId();
  const [draft, setDraft] = useState<Draft>(() => (job ? toDraft(job.name, job.spec) : EMPTY));
  const [enabled, setEnabled] = useState(job?.enabled ?? true);
  const save = useSave(job, draft, enabled);
  const set = (change: Partial<Draft>) => setDraft((before) => ({ ...before, ...change }));
  const wrong = (field: string) => wrongField(save.error, field === "name" ? "name" : `spec.${field}`);
  const network = useMemo(() => toSpec(draft).network ?? {}, [draft]);
  const form = { draft, set, wrong };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    save.mutate();
  };
  return (
    <form onSubmit={submit}>
      <Stack>
        <What {...form} />
        <Network {...form} editor={<PolicyText label="Policy" text={draft.policy} onChange={(policy) => set({ policy })} />}>
          <ReachTable network={network} />
        </Network>
        <Limits {...form} />
        <Secrets workspace={workspace} draft={draft} set={set} error={wrong("secrets")} />
        <When {...form} />
        <Notify {...form} />
        {job ? <Switch label="This job may run" checked={enabled} onChange={(event) => setEnabled(event.currentTarget.checked)} /> : null}
        <ProblemAlert error={save.error} shown={["name", ...SHOWN]} />
        <Group>
          <Button type="submit" loading={save.isPending}>{job ? "Save" : "Make it"}</Button>
          {job ? <RemoveJob job={job} /> : null}
        </Group>
      </Stack>
    </form>
  );
}

function useSave(job: Job | null, draft: Draft, enabled: boolean) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const navigate = useNavigate();
  return useMutation({
    mutationFn: () => {
      const body = { name: draft.name.trim(), spec: toSpec(draft), enabled };
      if (!job) return take(api.POST("/api/v1/workspaces/{workspace}/jobs", { params: { path: { workspace } }, body }));
      return take(api.PUT("/api/v1/workspaces/{workspace}/jobs/{job}", { params: { path: { workspace, job: job.id }, header: { "If-Match": `"${job.version}"` } }, body }));
    },
    onSuccess: async (kept) => {
      void queries.invalidateQueries({ queryKey: ["jobs", workspace] });
      queries.setQueryData(["job", workspace, kept.id], kept);
      told("The job was saved.");
      if (!job) await navigate({ to: "/w/$workspace/jobs/$job", params: { workspace, job: kept.id } });
    },
  });
}

function Secrets({ workspace, draft, set, error }: { workspace: string; draft: Draft; set: (change: Partial<Draft>) => void; error: string | undefined }) {
  const secrets = useQuery({
    queryKey: ["secrets", workspace, "names"],
    queryFn: async () => (await take(api.GET("/api/v1/workspaces/{workspace}/secrets", { params: { path: { workspace }, query: { limit: 200 } } }))).items.map((secret) => secret.name),
  });
  return (
    <Part title="Secrets" about="The command gets each as a variable of its name.">
      <TagsInput label="Names" description="Of secrets of this workspace" data={secrets.data ?? []} value={draft.secrets} error={error} onChange={(names) => set({ secrets: names })} splitChars={[",", " ", "\n"]} />
    </Part>
  );
}

function RemoveJob({ job }: { job: Job }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const remove = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/workspaces/{workspace}/jobs/{job}", { params: { path: { workspace, job: job.id }, header: { "If-Match": `"${job.version}"` } } })),
    onSuccess: async () => {
      void queries.invalidateQueries({ queryKey: ["jobs", workspace] });
      await navigate({ to: "/w/$workspace/jobs", params: { workspace } });
    },
  });
  return (
    <>
      <Button variant="default" onClick={() => setAsking(true)}>Delete the job</Button>
      {asking ? (
        <Confirm title="Delete this job?" deed="Delete" pending={remove.isPending} error={remove.error} onConfirm={() => remove.mutate()} onClose={() => setAsking(false)}>
          Its runs stay; those that wait are cancelled.
        </Confirm>
      ) : null}
    </>
  );
}
