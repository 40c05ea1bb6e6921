/** The workspace's secrets: set, replaced, deleted. A value is typed once and never comes back. */
import { Button, Group, PasswordInput, Stack, TagsInput, Text, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { Confirm } from "../ui/Confirm";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Dialog } from "../ui/Dialog";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { Page } from "../ui/Page";
import { PAGE, usePages } from "../ui/pages";
import { ProblemAlert } from "../ui/ProblemAlert";
import { told } from "../ui/told";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { visible } from "../ui/words";
import { useWorkspaceId } from "../ui/workspace";

type Secret = Schemas["SecretView"];

export function SecretsPage() {
  const workspace = useWorkspaceId();
  const secrets = usePages<Secret>(["secrets", workspace], (cursor) =>
    take(api.GET("/api/v1/workspaces/{workspace}/secrets", { params: { path: { workspace }, query: { cursor, limit: PAGE } } })));
  const [open, setOpen] = useState<"new" | { change: Secret } | { end: Secret } | null>(null);
  const close = () => setOpen(null);
  const columns: ColumnDef<Secret>[] = [
    { header: "Name", cell: ({ row }) => <span className="mono"><Words>{row.original.name}</Words></span> },
    { header: "Hosts", cell: ({ row }) => (row.original.hosts.length === 0 ? "wherever a run may go" : <Words>{row.original.hosts.join(", ")}</Words>) },
    { header: "Version", cell: ({ row }) => row.original.version },
    { header: "Value set", cell: ({ row }) => <When at={row.original.changed_at} /> },
    { header: "Last used", cell: ({ row }) => <When at={row.original.used_at} /> },
    {
      header: "Actions",
      cell: ({ row }) => (
        <Group gap="xs">
          <Button size="compact-sm" variant="default" aria-label={`Change ${visible(row.original.name)}`} onClick={() => setOpen({ change: row.original })}>Change</Button>
          <Button size="compact-sm" variant="default" aria-label={`Delete ${visible(row.original.name)}`} onClick={() => setOpen({ end: row.original })}>Delete</Button>
        </Group>
      ),
    },
  ];
  return (
    <Page title="Secrets" about="Kept encrypted, given to the runs of jobs that name them, never shown again." actions={<Button onClick={() => setOpen("new")}>Add a secret</Button>}>
      <Loaded query={secrets}>
        {(rows) => rows.length === 0
          ? <Empty title="No secrets">A job that names one gets it as a variable. Name the hosts at which it may be used, so that it is of no use anywhere else.</Empty>
          : <DataTable label="Secrets" columns={columns} rows={rows} rowId={(row) => row.id} />}
      </Loaded>
      <More query={secrets} />
      {open === "new" ? <AddSecret onClose={close} /> : null}
      {open !== null && open !== "new" && "change" in open ? <ChangeSecret secret={open.change} onClose={close} /> : null}
      {open !== null && open !== "new" && "end" in open ? <EndSecret secret={open.end} onClose={close} /> : null}
    </Page>
  );
}

const HOSTS = { label: "Hosts", description: "At which it may be used, such as api.example.com; none: wherever a run may go", splitChars: [",", " ", "\n"] };

function AddSecret({ onClose }: { onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const [hosts, setHosts] = useState<string[]>([]);
  const add = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/secrets", { params: { path: { workspace } }, body: { name, value, hosts } })),
    onSuccess: () => {
      told(`${visible(name)} is kept.`);
      onClose();
      return queries.invalidateQueries({ queryKey: ["secrets", workspace] });
    },
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    add.mutate();
  };
  return (
    <Dialog title="Add a secret" onClose={onClose}>
      <form onSubmit={submit}>
        <Stack>
          <TextInput label="Name" description="Capital letters, digits and _" required data-autofocus autoComplete="off" classNames={{ input: "mono" }} value={name} error={wrongField(add.error, "name")} onChange={(event) => setName(event.currentTarget.value)} />
          <PasswordInput label="Value" description="It is never shown again" required autoComplete="new-password" value={value} error={wrongField(add.error, "value")} onChange={(event) => setValue(event.currentTarget.value)} />
          <TagsInput {...HOSTS} value={hosts} onChange={setHosts} error={wrongField(add.error, "hosts")} />
          <ProblemAlert error={add.error} shown={["name", "value", "hosts"]} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={add.isPending}>Keep it</Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

function ChangeSecret({ secret, onClose }: { secret: Secret; onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const [value, setValue] = useState("");
  const [hosts, setHosts] = useState(secret.hosts);
  const change = useMutation({
    mutationFn: () => take(api.PATCH("/api/v1/workspaces/{workspace}/secrets/{secret}", {
      params: { path: { workspace, secret: secret.id } },
      body: { hosts, ...(value === "" ? {} : { value }) },
    })),
    onSuccess: () => {
      told(`${visible(secret.name)} was changed.`);
      onClose();
      return queries.invalidateQueries({ queryKey: ["secrets", workspace] });
    },
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    change.mutate();
  };
  return (
    <Dialog title="Change a secret" onClose={onClose}>
      <form onSubmit={submit}>
        <Stack>
          <Text className="mono"><Words>{secret.name}</Words></Text>
          <PasswordInput label="New value" description="Empty: the value stays. Further hosts need it again." autoComplete="new-password" data-autofocus value={value} error={wrongField(change.error, "value")} onChange={(event) => setValue(event.currentTarget.value)} />
          <TagsInput {...HOSTS} value={hosts} onChange={setHosts} error={wrongField(change.error, "hosts")} />
          <ProblemAlert error={change.error} shown={["value", "hosts"]} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={change.isPending}>Save</Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

function EndSecret({ secret, onClose }: { secret: Secret; onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/workspaces/{workspace}/secrets/{secret}", { params: { path: { workspace, secret: secret.id } } })),
    onSuccess: () => {
      onClose();
      return queries.invalidateQueries({ queryKey: ["secrets", workspace] });
    },
  });
  return (
    <Confirm title="Delete this secret?" deed="Delete" pending={end.isPending} error={end.error} onConfirm={() => end.mutate()} onClose={onClose}>
      Jobs that name <Words>{secret.name}</Words> cannot run any more until there is one of this name again.
    </Confirm>
  );
}
