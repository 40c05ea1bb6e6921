/** Admin → Users: everybody who has an account on this instance. */
import { Badge, Button, Checkbox, Group, Menu, PasswordInput, Stack, TextInput } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { useSelf } from "../api/session";
import { Confirm } from "../ui/Confirm";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { More } from "../ui/More";
import { Page } from "../ui/Page";
import { PAGE, usePages } from "../ui/pages";
import { Dialog } from "../ui/Dialog";
import { ProblemAlert } from "../ui/ProblemAlert";
import { told } from "../ui/told";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { visible } from "../ui/words";

type User = Schemas["UserView"];
/** What is to be done with whom, once it is confirmed. */
interface Deed {
  user: User;
  patch: Schemas["UserPatch"];
  title: string;
  deed: string;
  about: string;
}

export function UsersPage() {
  const [search, setSearch] = useState("");
  const [q] = useDebouncedValue(search.trim(), 250);
  const users = usePages<User>(["users", q], (cursor) =>
    take(api.GET("/api/v1/users", { params: { query: { cursor, limit: PAGE, ...(q === "" ? {} : { q }) } } })));
  const [adding, setAdding] = useState(false);
  const [deed, setDeed] = useState<Deed | null>(null);
  return (
    <Page title="Users" about="Everybody who has an account on this instance." actions={<Button onClick={() => setAdding(true)}>Add a user</Button>}>
      <TextInput type="search" label="Search" placeholder="Name or email" maxLength={200} value={search} onChange={(event) => setSearch(event.currentTarget.value)} maw={360} />
      <Loaded query={users}>
        {(rows) => rows.length === 0
          ? <Empty title="Nobody is called so">Search by a part of a name or an email address.</Empty>
          : <UserTable rows={rows} onDeed={setDeed} />}
      </Loaded>
      <More query={users} />
      {adding ? <AddUser onClose={() => setAdding(false)} /> : null}
      {deed ? <Change deed={deed} onClose={() => setDeed(null)} /> : null}
    </Page>
  );
}

function UserTable({ rows, onDeed }: { rows: User[]; onDeed: (deed: Deed) => void }) {
  const self = useSelf();
  const columns: ColumnDef<User>[] = [
    { header: "Name", cell: ({ row }) => <Words>{row.original.name}</Words> },
    { header: "Email", cell: ({ row }) => <Words>{row.original.email}</Words> },
    { header: "State", cell: ({ row }) => <State user={row.original} /> },
    { header: "Since", cell: ({ row }) => <When at={row.original.created_at} /> },
    {
      header: "Actions",
      cell: ({ row }) => (
        <Menu position="bottom-end">
          <Menu.Target><Button size="compact-sm" variant="default" aria-label={`Change ${visible(row.original.name)}`}>Change</Button></Menu.Target>
          <Menu.Dropdown>
            {deeds(row.original, self.id).map((one) => (
              <Menu.Item key={one.deed} onClick={() => onDeed(one)}>{one.deed}</Menu.Item>
            ))}
          </Menu.Dropdown>
        </Menu>
      ),
    },
  ];
  return <DataTable label="Users" columns={columns} rows={rows} rowId={(row) => row.id} />;
}

function State({ user }: { user: User }) {
  if (user.deactivated_at) return <Badge variant="outline" color="gray">deactivated</Badge>;
  return user.instance_admin ? <Badge variant="outline">administrator</Badge> : <>active</>;
}

function deeds(user: User, self: string): Deed[] {
  const you = user.id === self;
  const admin: Deed = user.instance_admin
    ? { user, patch: { instance_admin: false }, title: "Take the administrator's powers?", deed: "Make no administrator", about: you ? "You will not see this page any more." : "They keep their account and their workspaces." }
    : { user, patch: { instance_admin: true }, title: "Make an administrator?", deed: "Make an administrator", about: "Administrators manage users and see the audit log of the whole instance." };
  const active: Deed = user.deactivated_at
    ? { user, patch: { deactivated: false }, title: "Activate this account?", deed: "Activate", about: "They can sign in again." }
    : { user, patch: { deactivated: true }, title: "Deactivate this account?", deed: "Deactivate", about: "They are signed out everywhere at once, and their tokens stop working." };
  return [admin, active];
}

function Change({ deed, onClose }: { deed: Deed; onClose: () => void }) {
  const queries = useQueryClient();
  const change = useMutation({
    mutationFn: () => take(api.PATCH("/api/v1/users/{user}", { params: { path: { user: deed.user.id } }, body: deed.patch })),
    onSuccess: () => {
      told(`${visible(deed.user.name)}: done.`);
      onClose();
      void queries.invalidateQueries({ queryKey: ["session"] });
      return queries.invalidateQueries({ queryKey: ["users"] });
    },
  });
  return (
    <Confirm title={deed.title} deed={deed.deed} pending={change.isPending} error={change.error} onConfirm={() => change.mutate()} onClose={onClose}>
      <Words>{`${deed.user.name} (${deed.user.email})`}</Words>: {deed.about}
    </Confirm>
  );
}

function AddUser({ onClose }: { onClose: () => void }) {
  const queries = useQueryClient();
  const [values, setValues] = useState({ email: "", name: "", password: "", instance_admin: false });
  const add = useMutation({
    mutationFn: () => take(api.POST("/api/v1/users", { body: values })),
    onSuccess: () => {
      told(`${values.email} can sign in now.`);
      onClose();
      return queries.invalidateQueries({ queryKey: ["users"] });
    },
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    add.mutate();
  };
  const field = (name: "email" | "name" | "password") => ({
    value: values[name],
    required: true,
    error: wrongField(add.error, name),
    onChange: (event: { currentTarget: { value: string } }) => {
      const { value } = event.currentTarget;
      setValues((before) => ({ ...before, [name]: value }));
    },
  });
  return (
    <Dialog title="Add a user" onClose={onClose}>
      <form onSubmit={submit}>
        <Stack>
          <TextInput label="Email" type="email" autoComplete="off" data-autofocus {...field("email")} />
          <TextInput label="Name" autoComplete="off" {...field("name")} />
          <PasswordInput label="First password" description="At least 12 characters. Hand it over in person; they can change it in their settings." autoComplete="new-password" {...field("password")} />
          <Checkbox label="Administers this instance" checked={values.instance_admin}
            onChange={(event) => {
              const { checked } = event.currentTarget;
              setValues((before) => ({ ...before, instance_admin: checked }));
            }} />
          <ProblemAlert error={add.error} shown={["email", "name", "password"]} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={add.isPending}>Add</Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}
