/** What happened to a run, step by step, as its runner told it. */
import { Code, Text } from "@mantine/core";
import { usePages } from "../ui/pages";
import { api, take, type Schemas } from "../api/client";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

type Step = Schemas["StepView"];

export function Timeline({ run }: { run: string }) {
  const workspace = useWorkspaceId();
  const steps = usePages<Step>(["steps", workspace, run], async (cursor) => {
    const page = await take(api.GET("/api/v1/workspaces/{workspace}/runs/{run}/steps", { params: { path: { workspace, run }, query: { after: Number(cursor ?? 0), limit: 500 } } }));
    return { items: page.items, next: page.next === null || page.next === undefined ? null : String(page.next) };
  });
  return (
    <>
      <Loaded query={steps}>
        {(rows) => rows.length === 0 ? <Empty title="Nothing yet">Its runner tells here what it does.</Empty> : <DataTable label="Timeline" columns={COLUMNS} rows={rows} rowId={(step) => String(step.seq)} />}
      </Loaded>
      <More query={steps} />
    </>
  );
}

const COLUMNS: ColumnDef<Step>[] = [
  { header: "When", cell: ({ row }) => <When at={row.original.at} /> },
  { header: "Step", cell: ({ row }) => <Words>{row.original.kind.replaceAll("_", " ")}</Words> },
  { header: "What", cell: ({ row }) => <What data={row.original.data} /> },
];

/** Short facts as words, anything else as JSON. */
function What({ data }: { data: unknown }) {
  if (data === null || data === undefined) return null;
  if (typeof data === "string") return <Words most={600}>{data}</Words>;
  const entries = typeof data === "object" && !Array.isArray(data) ? Object.entries(data) : null;
  if (entries?.every(([, value]) => ["string", "number", "boolean"].includes(typeof value)) === true) {
    return <>{entries.map(([key, value]) => <Text size="sm" key={key} component="div"><Text span c="dimmed" size="sm"><Words>{key.replaceAll("_", " ")}</Words></Text> <Words most={400}>{String(value)}</Words></Text>)}</>;
  }
  return <Code className="wrap"><Words most={1000}>{JSON.stringify(data)}</Words></Code>;
}
