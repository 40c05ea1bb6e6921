/** The editor with the console's checks behind it: mistakes and warnings in place, completion from the published schema. */
import { Alert, List, Stack, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useDebouncedValue } from "@mantine/hooks";
import { api, take, type Schemas } from "../api/client";
import { sentence } from "../ui/ProblemAlert";
import { visible } from "../ui/words";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import type { Schema } from "./complete";
import { PolicyEditor, type Remark } from "./PolicyEditor";

type Report = Schemas["PolicyReport"];

/** What the console says about a policy's text. */
export function checkKey(workspace: string, text: string) {
  return {
    queryKey: ["policy-check", workspace, text],
    queryFn: () => take(api.POST("/api/v1/workspaces/{workspace}/policies/check", { params: { path: { workspace } }, body: { text } })),
    staleTime: Infinity,
    gcTime: 60_000,
  };
}

function remarks(report: Report): Remark[] {
  const of = (list: Schemas["Remark"][], severity: Remark["severity"]) =>
    list.map((one) => ({ line: one.line, column: one.column, severity, message: visible(one.hint ? `${one.message} (${one.hint})` : one.message) }));
  return [...of(report.mistakes, "error"), ...of(report.warnings, "warning"), ...of(report.not_enforced, "warning")];
}

export function PolicyText({ label, text, onChange }: { label: string; text: string; onChange: (text: string) => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const schema = useQuery({ queryKey: ["policy-schema"], queryFn: () => take(api.GET("/api/v1/policies/schema")), staleTime: Infinity });
  const check = async (asked: string) => (asked.trim() === "" ? [] : remarks(await queries.query(checkKey(workspace, asked))));
  return (
    <Stack gap="xs">
      <PolicyEditor label={label} text={text} onChange={onChange} check={check} schema={schema.data as Schema | undefined} />
      <Verdict text={text} />
    </Stack>
  );
}

/** The same in words, for who does not see marks in a margin. */
function Verdict({ text }: { text: string }) {
  const workspace = useWorkspaceId();
  const [asked] = useDebouncedValue(text, 400);
  const report = useQuery({ ...checkKey(workspace, asked), enabled: asked.trim() !== "" });
  if (!report.data || asked.trim() === "") return null;
  const all = remarks(report.data);
  if (report.data.ok && all.length === 0) return <Text size="sm" role="status">No mistakes.</Text>;
  return (
    <Alert color={report.data.ok ? "yellow" : "red"} role="status" title={report.data.ok ? "It works, but look at this" : "It is not a policy yet"}>
      <List size="sm">
        {all.slice(0, 20).map((one, index) => (
          <List.Item key={index}><Words most={600}>{`Line ${one.line}, column ${one.column}: ${sentence(one.message)}`}</Words></List.Item>
        ))}
      </List>
    </Alert>
  );
}
