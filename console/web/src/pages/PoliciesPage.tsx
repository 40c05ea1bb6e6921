/** A place to write and try policies: mistakes in place, what is reached, why, and what a change changes in words. */
import { Badge, Group, List, Select, Stack, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useDebouncedValue } from "@mantine/hooks";
import { useMemo, useState } from "react";
import { api, take, type Schemas } from "../api/client";
import { Part } from "../jobs/JobForm";
import { ReachTable } from "../jobs/ReachTable";
import { ExplainBox } from "../policy/ExplainBox";
import { InGit } from "../policy/InGit";
import { checkKey, PolicyText } from "../policy/PolicyText";
import { Propose } from "../policy/Propose";
import { choices, useSources, type Choice } from "../policy/sources";
import { PolicyTests, Replay } from "../policy/Tries";
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
  const [opened, setOpened] = useState<Choice | null>(null);
  const sources = useSources(workspace);
  const jobs = useQuery({
    queryKey: ["jobs", workspace, "policies"],
    queryFn: async () => (await take(api.GET("/api/v1/workspaces/{workspace}/jobs", { params: { path: { workspace }, query: { limit: 200 } } }))).items,
  });
  const withPolicy = (jobs.data ?? []).filter((job) => typeof job.spec.network?.policy === "string");
  const [from, setFrom] = useState("");
  const load = (id: string | null) => {
    setFrom(id ?? "");
    if (id === "git") return;
    const job = jobs.data?.find((one) => one.id === id);
    const loaded = job?.spec.network?.policy ?? EXAMPLE;
    setBefore(loaded);
    setText(loaded);
    setOpened(null);
  };
  const open = (choice: Choice, loaded: string) => {
    setBefore(loaded);
    setText(loaded);
    setOpened(choice);
    setFrom("git");
    document.querySelector<HTMLElement>(".policy-editor .cm-content")?.focus();
  };
  const proposable = opened !== null && text !== before && choices(sources.data?.items ?? []).some((one) => one.source === opened.source && one.file === opened.file);
  const network = useNetwork(text);
  return (
    <Page title="Policies" about="What is in force from git, and a place to try a policy before a job has it. Nothing that you write here is kept.">
      <Part title="In force from git"><InGit onOpen={open} /></Part>
      <Part title="Policy">
        <Select label="Begin with" allowDeselect={false} value={from} onChange={load} maw={360}
          data={[{ value: "", label: "an example" }, ...(opened ? [{ value: "git", label: `${visible(opened.file)} of ${visible(opened.source)}` }] : []), ...withPolicy.map((job) => ({ value: job.id, label: `the policy of ${visible(job.name)}` }))]} />
        <PolicyText label="Policy" text={text} onChange={setText} />
      </Part>
      <Part title="What changes"><Changes before={before} after={text} />
        {network && opened && proposable ? <Propose key={`${opened.source} ${opened.file}`} choice={opened} text={text} title="" /> : null}
      </Part>
      {network ? (
        <>
          <Part title="Why?"><ExplainBox network={network} /></Part>
          <Part title="Reach"><ReachTable network={network} /></Part>
          <Part title="Tests"><PolicyTests text={network.policy ?? ""} /></Part>
          <Part title="Replay" about="What this policy would have made of the newest flows that were recorded."><Replay text={network.policy ?? ""} jobs={jobs.data ?? []} /></Part>
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
