/** Admin → Runners: the machines that run jobs. Each has a token, shown once. */
import { Alert, Badge, Button, Code, Group, Select, Stack, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { useWorkspaces } from "../api/session";
import { Confirm } from "../ui/Confirm";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Dialog } from "../ui/Dialog";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { Page } from "../ui/Page";
import { PAGE, usePages } from "../ui/pages";
import { ProblemAlert } from "../ui/ProblemAlert";
import { Secret } from "../ui/Secret";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { visible } from "../ui/words";

type Runner = Schemas["RunnerView"];

export function RunnersPage() {
  const runners = usePages<Runner>(["runners"], (cursor) => take(api.GET("/api/v1/runners", { params: { query: { cursor, limit: PAGE } } })), { refetchInterval: 10_000 });
  const workspaces = useWorkspaces();
  const [adding, setAdding] = useState(false);
  const [ending, setEnding] = useState<Runner | null>(null);
  const nameOf = (id: string) => workspaces.data?.find((one) => one.id === id)?.name ?? id;
  const columns: ColumnDef<Runner>[] = [
    { header: "Name", cell: ({ row }) => <Words>{row.original.name}</Words> },
    { header: "State", cell: ({ row }) => (row.original.here ? <Badge variant="outline" className="state state-good">here</Badge> : <Badge variant="outline" className="state state-plain">{row.original.seen_at ? "away" : "never seen"}</Badge>) },
    { header: "Works for", cell: ({ row }) => (row.original.workspace ? <Words>{nameOf(row.original.workspace)}</Words> : "every workspace") },
    { header: "Isolation", cell: ({ row }) => <Words>{facts(row.original)}</Words> },
    { header: "Version", cell: ({ row }) => <Words>{row.original.version ?? "–"}</Words> },
    { header: "Last heard of", cell: ({ row }) => <When at={row.original.seen_at} /> },
    { header: "Access", cell: ({ row }) => <Button size="compact-sm" variant="default" aria-label={`Revoke ${visible(row.original.name)}`} onClick={() => setEnding(row.original)}>Revoke</Button> },
  ];
  return (
    <Page title="Runners" about="Machines that run jobs. They connect to this console by themselves." actions={<Button onClick={() => setAdding(true)}>Add a runner</Button>}>
      <Loaded query={runners}>
        {(rows) => rows.length === 0
          ? <Empty title="No runners">Jobs wait until there is one. Add a runner, put its token into a file on the other machine, name it as <code>runner.token_file</code> and this console as <code>runner.console</code> in its configuration, and start <code>sallyport gateway</code> and <code>sallyport runner</code> there. <code>sallyport up</code> brings one for this machine.</Empty>
          : <DataTable label="Runners" columns={columns} rows={rows} rowId={(row) => row.id} />}
      </Loaded>
      <More query={runners} />
      {adding ? <AddRunner onClose={() => setAdding(false)} /> : null}
      {ending ? <EndRunner runner={ending} onClose={() => setEnding(null)} /> : null}
    </Page>
  );
}

/** Engine and isolation classes, as the runner said them. */
function facts(runner: Runner): string {
  const told = runner.facts as { engine?: unknown; isolation?: unknown } | null | undefined;
  const classes = Array.isArray(told?.isolation) ? told.isolation.map(String).join(", ") : typeof told?.isolation === "string" ? told.isolation : "";
  const engine = typeof told?.engine === "string" ? told.engine : "";
  return [classes, engine].filter((part) => part !== "").join(" on ") || "–";
}

function AddRunner({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const workspaces = useWorkspaces();
  const [name, setName] = useState("");
  const [workspace, setWorkspace] = useState("");
  const add = useMutation({
    mutationFn: () => take(api.POST("/api/v1/runners", { body: { name, workspace: workspace === "" ? null : workspace } })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["runners"] }),
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    add.mutate();
  };
  if (add.data) {
    return (
      <Dialog title="The runner's token" onClose={onClose} lasting>
        <Stack>
          <Alert color="yellow" title="It is shown this once">Put it into a file that only the runner reads, named by <Code>runner.token_file</Code>.</Alert>
          <Secret text={add.data.token} label="token" />
          <Group justify="flex-end"><Button onClick={onClose}>Done</Button></Group>
        </Stack>
      </Dialog>
    );
  }
  return (
    <Dialog title="Add a runner" onClose={onClose}>
      <form onSubmit={submit}>
        <Stack>
          <TextInput label="Name" required data-autofocus value={name} error={wrongField(add.error, "name")} onChange={(event) => setName(event.currentTarget.value)} />
          <Select label="It works for" allowDeselect={false} value={workspace} error={wrongField(add.error, "workspace")} onChange={(value) => setWorkspace(value ?? "")}
            data={[{ value: "", label: "every workspace" }, ...(workspaces.data ?? []).map((one) => ({ value: one.id, label: visible(one.name) }))]} />
          <ProblemAlert error={add.error} shown={["name", "workspace"]} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={add.isPending}>Add</Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

function EndRunner({ runner, onClose }: { runner: Runner; onClose: () => void }) {
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/runners/{runner}", { params: { path: { runner: runner.id } } })),
    onSuccess: () => {
      onClose();
      return queries.invalidateQueries({ queryKey: ["runners"] });
    },
  });
  return (
    <Confirm title="Revoke this runner?" deed="Revoke" pending={end.isPending} error={end.error} onConfirm={() => end.mutate()} onClose={onClose}>
      <Words>{runner.name}</Words> is refused from then on, and what it runs is ended.
    </Confirm>
  );
}
