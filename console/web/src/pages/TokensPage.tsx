/** One's own API tokens in the workspace: made, shown once, revoked. */
import { Alert, Badge, Button, Group, NumberInput, Select, Stack, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { Confirm } from "../ui/Confirm";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { Page } from "../ui/Page";
import { PAGE, usePages } from "../ui/pages";
import { Dialog } from "../ui/Dialog";
import { ProblemAlert } from "../ui/ProblemAlert";
import { Secret } from "../ui/Secret";
import { useNow, When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";

type Token = Schemas["TokenView"];

export function TokensPage() {
  const workspace = useWorkspaceId();
  const tokens = usePages<Token>(["tokens", workspace], (cursor) =>
    take(api.GET("/api/v1/workspaces/{workspace}/tokens", { params: { path: { workspace }, query: { cursor, limit: PAGE } } })));
  const [adding, setAdding] = useState(false);
  const [ending, setEnding] = useState<Token | null>(null);
  return (
    <Page
      title="Tokens"
      about="Yours, for programs that speak to the API. A token has your role in this workspace and ends with your access; it can never manage members, workspaces or tokens."
      actions={<Button onClick={() => setAdding(true)}>Make a token</Button>}
    >
      <Loaded query={tokens}>
        {(rows) => rows.length === 0
          ? <Empty title="No tokens">A program sends one as <code>Authorization: Bearer</code>. It is shown once, when it is made.</Empty>
          : <TokenTable rows={rows} onEnd={setEnding} />}
      </Loaded>
      <More query={tokens} />
      {adding ? <AddToken onClose={() => setAdding(false)} /> : null}
      {ending ? <EndToken token={ending} onClose={() => setEnding(null)} /> : null}
    </Page>
  );
}

function TokenTable({ rows, onEnd }: { rows: Token[]; onEnd: (token: Token) => void }) {
  const now = useNow();
  const columns: ColumnDef<Token>[] = [
    { header: "Name", cell: ({ row }) => <Words>{row.original.name}</Words> },
    { header: "May", cell: ({ row }) => (row.original.scope === "write" ? "read and write" : "read") },
    { header: "Made", cell: ({ row }) => <When at={row.original.created_at} /> },
    { header: "Last used", cell: ({ row }) => <When at={row.original.used_at} /> },
    {
      header: "Ends",
      cell: ({ row }) => {
        const { expires_at: ends } = row.original;
        if (ends !== null && ends !== undefined && ends <= now) return <Badge color="gray" variant="outline">over</Badge>;
        return <When at={ends} />;
      },
    },
    { header: "Access", cell: ({ row }) => <Button size="compact-sm" variant="default" onClick={() => onEnd(row.original)}>Revoke</Button> },
  ];
  return <DataTable label="Tokens" columns={columns} rows={rows} rowId={(row) => row.id} />;
}

function AddToken({ onClose }: { onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [scope, setScope] = useState("read");
  const [days, setDays] = useState<number | string>(90);
  const add = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/tokens", {
      params: { path: { workspace } },
      body: { name, scope, expires_in_days: typeof days === "number" ? days : null },
    })),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["tokens", workspace] }),
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    add.mutate();
  };
  if (add.data) {
    return (
      <Dialog title="Your token" onClose={onClose} lasting>
        <Stack>
          <Alert color="yellow" title="It is shown this once">Copy it now; the console keeps only a hash of it.</Alert>
          <Secret text={add.data.token} label="token" />
          <Group justify="flex-end"><Button onClick={onClose}>Done</Button></Group>
        </Stack>
      </Dialog>
    );
  }
  return (
    <Dialog title="Make a token" onClose={onClose}>
      <form onSubmit={submit}>
        <Stack>
          <TextInput label="Name" description="What it is for" required data-autofocus value={name} error={wrongField(add.error, "name")}
            onChange={(event) => setName(event.currentTarget.value)} />
          <Select label="It may" allowDeselect={false} value={scope} error={wrongField(add.error, "scope")} onChange={(value) => setScope(value ?? "read")}
            data={[{ value: "read", label: "read" }, { value: "write", label: "read and write" }]} />
          <NumberInput label="Days until it ends" description="Empty: when it is revoked" min={1} max={3650} allowDecimal={false} value={days}
            error={wrongField(add.error, "expires_in_days")} onChange={setDays} />
          <ProblemAlert error={add.error} shown={["name", "scope", "expires_in_days"]} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={add.isPending}>Make it</Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

function EndToken({ token, onClose }: { token: Token; onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/workspaces/{workspace}/tokens/{token}", { params: { path: { workspace, token: token.id } } })),
    onSuccess: () => {
      onClose();
      return queries.invalidateQueries({ queryKey: ["tokens", workspace] });
    },
  });
  return (
    <Confirm title="Revoke this token?" deed="Revoke" pending={end.isPending} error={end.error} onConfirm={() => end.mutate()} onClose={onClose}>
      Programs that send <Words>{token.name}</Words> are refused from then on.
    </Confirm>
  );
}
