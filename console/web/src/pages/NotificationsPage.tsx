/** Whom the workspace tells about its runs: webhooks and mail, each with a test and the log of what was sent. */
import { Alert, Button, Checkbox, Group, Select, Stack, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { Deliveries } from "../notify/Deliveries";
import { topicName, TOPICS } from "../notify/topics";
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
import { Words } from "../ui/Words";
import { visible } from "../ui/words";
import { useWorkspaceId } from "../ui/workspace";

type Notification = Schemas["NotificationView"];

export function NotificationsPage() {
  const workspace = useWorkspaceId();
  const notifications = usePages<Notification>(["notifications", workspace], (cursor) =>
    take(api.GET("/api/v1/workspaces/{workspace}/notifications", { params: { path: { workspace }, query: { cursor, limit: PAGE } } })));
  const [adding, setAdding] = useState(false);
  const [seen, setSeen] = useState<Notification | null>(null);
  const [ending, setEnding] = useState<Notification | null>(null);
  const columns: ColumnDef<Notification>[] = [
    { header: "Name", cell: ({ row }) => <Words>{row.original.name}</Words> },
    { header: "By", cell: ({ row }) => (row.original.kind === "email" ? "mail" : row.original.kind) },
    { header: "To", cell: ({ row }) => <span className="mono"><Words most={200}>{row.original.address}</Words></span> },
    { header: "About", cell: ({ row }) => row.original.topics.map(topicName).join(", ") },
    {
      header: "Actions",
      cell: ({ row }) => (
        <Group gap="xs">
          <Button size="compact-sm" variant="default" aria-label={`Deliveries to ${visible(row.original.name)}`} onClick={() => setSeen(row.original)}>Deliveries</Button>
          <Button size="compact-sm" variant="default" aria-label={`Delete ${visible(row.original.name)}`} onClick={() => setEnding(row.original)}>Delete</Button>
        </Group>
      ),
    },
  ];
  return (
    <Page title="Notifications" about="Whom this workspace tells when a run ends." actions={<Button onClick={() => setAdding(true)}>Tell somebody</Button>}>
      <Loaded query={notifications}>
        {(rows) => rows.length === 0
          ? <Empty title="Nobody is told">A webhook gets a signed POST, an address gets mail, when a run of this workspace fails or succeeds.</Empty>
          : <DataTable label="Notifications" columns={columns} rows={rows} rowId={(row) => row.id} />}
      </Loaded>
      <More query={notifications} />
      {adding ? <AddNotification onClose={() => setAdding(false)} /> : null}
      {seen ? <Deliveries to={seen} onClose={() => setSeen(null)} /> : null}
      {ending ? <EndNotification notification={ending} onClose={() => setEnding(null)} /> : null}
    </Page>
  );
}

function AddNotification({ onClose }: { onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const [name, setName] = useState("");
  const [kind, setKind] = useState("webhook");
  const [address, setAddress] = useState("");
  const [topics, setTopics] = useState<string[]>(["run.failed"]);
  const add = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/notifications", { params: { path: { workspace } }, body: { name, kind, address, topics } })),
    onSuccess: (fresh) => {
      if (typeof fresh.signing_key !== "string") onClose();
      return queries.invalidateQueries({ queryKey: ["notifications", workspace] });
    },
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    add.mutate();
  };
  if (typeof add.data?.signing_key === "string") return <SigningKey text={add.data.signing_key} onClose={onClose} />;
  return (
    <Dialog title="Tell somebody" onClose={onClose}>
      <form onSubmit={submit}>
        <Stack>
          <TextInput label="Name" required data-autofocus autoComplete="off" value={name} error={wrongField(add.error, "name")} onChange={(event) => setName(event.currentTarget.value)} />
          <Select label="By" allowDeselect={false} value={kind} error={wrongField(add.error, "kind")} onChange={(value) => setKind(value ?? "webhook")} data={[{ value: "webhook", label: "webhook" }, { value: "email", label: "mail" }]} />
          <TextInput label={kind === "email" ? "Address" : "URL"} required autoComplete="off" classNames={{ input: "mono" }} value={address} error={wrongField(add.error, "address")} onChange={(event) => setAddress(event.currentTarget.value)} />
          <Checkbox.Group label="When" value={topics} error={wrongField(add.error, "topics")} onChange={setTopics}>
            <Stack gap="xs" mt="xs">{TOPICS.map((topic) => <Checkbox key={topic} value={topic} label={topicName(topic)} />)}</Stack>
          </Checkbox.Group>
          <ProblemAlert error={add.error} shown={["name", "kind", "address", "topics"]} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={add.isPending}>Add</Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

function SigningKey({ text, onClose }: { text: string; onClose: () => void }) {
  return (
    <Dialog title="The webhook's signing key" onClose={onClose} lasting>
      <Stack>
        <Alert color="yellow" title="It is shown this once">Whoever receives the webhook checks with it that a call comes from here (Standard Webhooks).</Alert>
        <Secret text={text} label="signing key" />
        <Group justify="flex-end"><Button onClick={onClose}>Done</Button></Group>
      </Stack>
    </Dialog>
  );
}

function EndNotification({ notification, onClose }: { notification: Notification; onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/workspaces/{workspace}/notifications/{notification}", { params: { path: { workspace, notification: notification.id } } })),
    onSuccess: () => {
      onClose();
      return queries.invalidateQueries({ queryKey: ["notifications", workspace] });
    },
  });
  return (
    <Confirm title="Tell them nothing any more?" deed="Delete" pending={end.isPending} error={end.error} onConfirm={() => end.mutate()} onClose={onClose}>
      <Words>{notification.name}</Words> is told nothing from then on, and what was sent is forgotten.
    </Confirm>
  );
}
