/** Settings of oneself: where one is signed in, another password; and what this console is. */
import { Anchor, Badge, Button, Group, Paper, PasswordInput, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent, type ReactNode } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { useAbout, useSelf, useSignOut } from "../api/session";
import { Checklist } from "../ui/Checklist";
import { Confirm } from "../ui/Confirm";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { FirewallAlert, FirewallLabel } from "../ui/Firewall";
import { device } from "../ui/format";
import { Loaded } from "../ui/Loaded";
import { Page } from "../ui/Page";
import { ProblemAlert } from "../ui/ProblemAlert";
import { told } from "../ui/told";
import { When } from "../ui/When";
import { Words } from "../ui/Words";

type Device = Schemas["Device"];

export function AccountPage() {
  const self = useSelf();
  return (
    <Page title="Settings" about={<><Words>{self.name}</Words>, <Words>{self.email}</Words></>}>
      <Devices />
      <ChangePassword />
      <Part title="Sandbox backend"><FirewallLabel /><FirewallAlert /></Part>
      {self.instance_admin ? <div id="checklist"><Part title="Checklist"><Checklist /></Part></div> : null}
      <About />
    </Page>
  );
}

function Part({ title, actions, children }: { title: string; actions?: ReactNode; children: ReactNode }) {
  return (
    <Paper withBorder p="md" component="section" aria-label={title}>
      <Stack>
        <Group justify="space-between">
          <Title order={2} size="h4">{title}</Title>
          {actions}
        </Group>
        {children}
      </Stack>
    </Paper>
  );
}

function Devices() {
  const devices = useQuery({ queryKey: ["devices"], queryFn: async () => (await take(api.GET("/api/v1/sessions"))).items });
  const everywhere = useSignOut("everywhere");
  const [asking, setAsking] = useState(false);
  return (
    <Part title="Where you are signed in" actions={<Button variant="default" onClick={() => setAsking(true)}>Sign out everywhere</Button>}>
      <Loaded query={devices}>{(rows) => <DataTable label="Where you are signed in" columns={DEVICES} rows={rows} rowId={(row) => row.id} />}</Loaded>
      {asking ? (
        <Confirm title="Sign out everywhere?" deed="Sign out everywhere" pending={everywhere.isPending} error={everywhere.error}
          onConfirm={() => everywhere.mutate()} onClose={() => setAsking(false)}>
          Every device is signed out at once, this one too. API tokens stay.
        </Confirm>
      ) : null}
    </Part>
  );
}

const DEVICES: ColumnDef<Device>[] = [
  { header: "Device", cell: ({ row }) => <Group gap="xs"><Words>{device(row.original.agent)}</Words>{row.original.current ? <Badge variant="outline">this one</Badge> : null}</Group> },
  { header: "Address", cell: ({ row }) => <Words>{row.original.address}</Words> },
  { header: "Signed in", cell: ({ row }) => <When at={row.original.created_at} /> },
  { header: "Last used", cell: ({ row }) => <When at={row.original.seen_at} /> },
  { header: "Ends", cell: ({ row }) => <When at={row.original.expires_at} /> },
  { header: "Access", cell: ({ row }) => (row.original.current ? null : <EndDevice id={row.original.id} />) },
];

function EndDevice({ id }: { id: string }) {
  const queries = useQueryClient();
  const end = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/sessions/{session}", { params: { path: { session: id } } })),
    onSettled: () => queries.invalidateQueries({ queryKey: ["devices"] }),
  });
  return (
    <>
      <Button size="compact-sm" variant="default" loading={end.isPending} onClick={() => end.mutate()}>Sign out</Button>
      <ProblemAlert error={end.error} />
    </>
  );
}

function ChangePassword() {
  const about = useAbout();
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const queries = useQueryClient();
  const change = useMutation({
    mutationFn: () => take(api.PUT("/api/v1/session/password", { body: { current, password } })),
    onSuccess: () => {
      told("Your password was changed; every other device was signed out, and your API tokens were ended.");
      setCurrent("");
      setPassword("");
      return queries.invalidateQueries({ queryKey: ["devices"] });
    },
  });
  if (about.data?.email_password !== true) return null;
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    change.mutate();
  };
  return (
    <Part title="Password">
      <form onSubmit={submit}>
        <Stack maw={400}>
          <PasswordInput label="Current password" autoComplete="current-password" required value={current} error={wrongField(change.error, "current")} onChange={(event) => setCurrent(event.currentTarget.value)} />
          <PasswordInput label="New password" description="At least 12 characters. Every other device is signed out, and your API tokens end." autoComplete="new-password" required value={password} error={wrongField(change.error, "password")} onChange={(event) => setPassword(event.currentTarget.value)} />
          <ProblemAlert error={change.error} shown={["current", "password"]} />
          <Group><Button type="submit" loading={change.isPending}>Change the password</Button></Group>
        </Stack>
      </form>
    </Part>
  );
}

function About() {
  const about = useAbout();
  return (
    <Part title="About">
      <Loaded query={about}>
        {(data) => (
          <Text size="sm">
            Sallyport {data.version}. <Anchor href="/api/v1/openapi.json" inherit underline="always">The API&apos;s description</Anchor> (OpenAPI).
          </Text>
        )}
      </Loaded>
    </Part>
  );
}
