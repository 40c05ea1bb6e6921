/** A place to write and try policies: mistakes in place, what is reached, why, and what a change changes in words. */
import { Badge, Group, List, Select, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { Part } from "../jobs/JobForm";
import { ReachTable } from "../jobs/ReachTable";
import { ExplainBox } from "../policy/ExplainBox";
import { checkKey, PolicyText } from "../policy/PolicyText";
import { Empty } from "../ui/Empty";
import { Page } from "../ui/Page";
import { ProblemAlert, sentence } from "../ui/ProblemAlert";
import { visible } from "../ui/words";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

const EXAMPLE = `policy: example
description: Reads one public site and nothing else
network: domains
allow:
  - host: example.com
  - host: "*.example.com"
deny:
  - host: ads.example.com
    reason: nobody needs these
`;

export function PoliciesPage() {
  const workspace = useWorkspaceId();
  const [before, setBefore] = useState(EXAMPLE);
  const [text, setText] = useState(EXAMPLE);
  const jobs = useQuery({
    queryKey: ["jobs", workspace, "policies"],
    queryFn: async () => (await take(api.GET("/api/v1/workspaces/{workspace}/jobs", { params: { path: { workspace }, query: { limit: 200 } } }))).items.filter((job) => typeof job.spec.network?.policy === "string"),
  });
  const load = (id: string | null) => {
    const job = jobs.data?.find((one) => one.id === id);
    const loaded = job?.spec.network?.policy ?? EXAMPLE;
    setBefore(loaded);
    setText(loaded);
  };
  const network = useNetwork(text);
  return (
    <Page title="Policies" about="Try a policy before a job has it. Nothing here is kept; a job's page is where it gets its policy.">
      <Part title="Policy">
        <Select label="Begin with" allowDeselect={false} defaultValue="" onChange={load} maw={360}
          data={[{ value: "", label: "an example" }, ...(jobs.data ?? []).map((job) => ({ value: job.id, label: `the policy of ${visible(job.name)}` }))]} />
        <PolicyText label="Policy" text={text} onChange={setText} />
      </Part>
      <Part title="What changes"><Changes before={before} after={text} /></Part>
      {network ? (
        <>
          <Part title="Why?"><ExplainBox network={network} /></Part>
          <Part title="Reach"><ReachTable network={network} /></Part>
        </>
      ) : <Empty title="Not a policy yet">Once the text has no mistakes, what it reaches stands here.</Empty>}
    </Page>
  );
}

/** The network setting of a job with this policy; nothing while it has mistakes. */
function useNetwork(text: string): Schemas["NetworkSpec"] | null {
  const workspace = useWorkspaceId();
  const [asked] = useDebouncedValue(text, 400);
  const { data } = useQuery({ ...checkKey(workspace, asked), placeholderData: keepPreviousData });
  return useMemo(() => {
    if (data?.ok !== true) return null;
    const mode = data.network as "internet" | "domains" | "none";
    return { mode, allow_private: data.private === true, policy: asked };
  }, [data, asked]);
}

function Changes({ before, after }: { before: string; after: string }) {
  const workspace = useWorkspaceId();
  const [asked] = useDebouncedValue(after, 600);
  const same = before === asked;
  const diff = useQuery({
    queryKey: ["policy-diff", workspace, before, asked],
    queryFn: () => take(api.POST("/api/v1/workspaces/{workspace}/policies/diff", { params: { path: { workspace } }, body: { before, after: asked } })),
    enabled: !same,
    retry: false,
  });
  if (same) return <Text size="sm" c="dimmed">Nothing yet: this is what you began with.</Text>;
  if (diff.error) return <ProblemAlert error={diff.error} />;
  const changes = (diff.data?.changes ?? []) as { effect?: unknown; text?: unknown }[];
  if (diff.data && changes.length === 0) return <Text size="sm">Nothing that a sandbox would notice.</Text>;
  return (
    <Stack gap={4}>
      <List size="sm" listStyleType="none">
        {changes.map((change, index) => (
          <List.Item key={index}>
            <Group gap="xs" wrap="nowrap"><Effect word={String(change.effect)} /><Words most={600}>{sentence(String(change.text))}</Words></Group>
          </List.Item>
        ))}
      </List>
    </Stack>
  );
}

function Effect({ word }: { word: string }) {
  const tone = word === "wider" ? "state-bad" : word === "narrower" ? "state-good" : "state-plain";
  return <Badge variant="outline" className={`state ${tone}`} miw={84}>{word}</Badge>;
}
