/** Who is in the workspace, as what; admins add people, change roles and remove. */
import { Button, Group, NativeSelect, Select, Stack, TextInput } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { atLeast, useSelf, useWorkspaces } from "../api/session";
import { Confirm } from "../ui/Confirm";
import { DataTable, type ColumnDef } from "../ui/DataTable";
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
import { useRole, useWorkspaceId } from "../ui/workspace";

type Member = Schemas["MemberView"];

const ROLES = [
  { value: "member", label: "Member: runs jobs, manages secrets" },
  { value: "admin", label: "Admin: also members, settings, runners" },
];

export function MembersPage() {
  const workspace = useWorkspaceId();
  const role = useRole();
  const kind = useWorkspaces().data?.find((one) => one.id === workspace)?.kind;
  const members = usePages<Member>(["members", workspace], (cursor) =>
    take(api.GET("/api/v1/workspaces/{workspace}/members", { params: { path: { workspace }, query: { cursor, limit: PAGE } } })));
  const [adding, setAdding] = useState(false);
  const [removing, setRemoving] = useState<Member | null>(null);
  const manages = atLeast(role, "admin");
  return (
    <Page
      title="Members"
      about={about(kind)}
      actions={manages && kind !== "personal" ? <Button onClick={() => setAdding(true)}>Add a member</Button> : null}
    >
      <Loaded query={members}>
        {(rows) => <MemberTable rows={rows} manages={manages} removable={kind === "organisation"} onRemove={setRemoving} />}
      </Loaded>
      <More query={members} />
      {adding ? <AddMember onClose={() => setAdding(false)} /> : null}
      {removing ? <RemoveMember member={removing} onClose={() => setRemoving(null)} /> : null}
    </Page>
  );
}

function about(kind: string | undefined): string {
  if (kind === "personal") return "A personal workspace has one member.";
  if (kind === "shared") return "Everybody who has an account here is in this workspace.";
  return "Who is in this workspace, and what they may do in it.";
}

interface TableProps {
  rows: Member[];
  manages: boolean;
  removable: boolean;
  onRemove: (member: Member) => void;
}

function MemberTable({ rows, manages, removable, onRemove }: TableProps) {
  const self = useSelf();
  const columns: ColumnDef<Member>[] = [
    { header: "Name", cell: ({ row }) => <Words>{row.original.name}</Words> },
    { header: "Email", cell: ({ row }) => <Words>{row.original.email}</Words> },
    { header: "Role", cell: ({ row }) => (manages && rows.length > 1 ? <RoleSelect member={row.original} /> : row.original.role) },
    { header: "Since", cell: ({ row }) => <When at={row.original.created_at} /> },
  ];
  if (removable) {
    columns.push({
      header: "Access",
      cell: ({ row }) => {
        const mine = row.original.user === self.id;
        if (!mine && !manages) return null;
        return (
          <Button size="compact-sm" variant="default" onClick={() => onRemove(row.original)}>{mine ? "Leave" : "Remove"}</Button>
        );
      },
    });
  }
  return <DataTable label="Members" columns={columns} rows={rows} rowId={(row) => row.user} />;
}

function RoleSelect({ member }: { member: Member }) {
  const workspace = useWorkspaceId();
  const mine = useRole();
  const queries = useQueryClient();
  const change = useMutation({
    mutationFn: (role: string) =>
      take(api.PUT("/api/v1/workspaces/{workspace}/members/{user}", { params: { path: { workspace, user: member.user } }, body: { role } })),
    onSuccess: (_, role) => {
      told(`${visible(member.name)} is ${role} now.`);
      void queries.invalidateQueries({ queryKey: ["workspaces"] });
    },
    onSettled: () => queries.invalidateQueries({ queryKey: ["members", workspace] }),
  });
  // an owner's role is an owner's to change
  if (member.role === "owner" && mine !== "owner") return <>owner</>;
  const roles = mine === "owner" ? ["member", "admin", "owner"] : ["member", "admin"];
  return (
    <Stack gap={4}>
      <NativeSelect size="xs" aria-label={`Role of ${visible(member.name)}`} value={member.role} data={roles} disabled={change.isPending}
        onChange={(event) => change.mutate(event.currentTarget.value)} />
      <ProblemAlert error={change.error} />
    </Stack>
  );
}

function AddMember({ onClose }: { onClose: () => void }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const [email, setEmail] = useState("");
  const [role, setRole] = useState("member");
  const add = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/members", { params: { path: { workspace } }, body: { email, role } })),
    onSuccess: () => {
      told(`${email} is a member now.`);
      onClose();
      return queries.invalidateQueries({ queryKey: ["members", workspace] });
    },
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    add.mutate();
  };
  return (
    <Dialog title="Add a member" onClose={onClose}>
      <form onSubmit={submit}>
        <Stack>
          <TextInput label="Email" description="Of somebody who has an account here" type="email" required data-autofocus
            value={email} error={wrongField(add.error, "email")} onChange={(event) => setEmail(event.currentTarget.value)} />
          <Select label="Role" data={ROLES} value={role} allowDeselect={false} error={wrongField(add.error, "role")} onChange={(value) => setRole(value ?? "member")} />
          <ProblemAlert error={add.error} shown={["email", "role"]} />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>Cancel</Button>
            <Button type="submit" loading={add.isPending}>Add</Button>
          </Group>
        </Stack>
      </form>
    </Dialog>
  );
}

function RemoveMember({ member, onClose }: { member: Member; onClose: () => void }) {
  const workspace = useWorkspaceId();
  const self = useSelf();
  const queries = useQueryClient();
  const mine = member.user === self.id;
  const remove = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/workspaces/{workspace}/members/{user}", { params: { path: { workspace, user: member.user } } })),
    onSuccess: () => {
      onClose();
      void queries.invalidateQueries({ queryKey: ["workspaces"] });
      return queries.invalidateQueries({ queryKey: ["members", workspace] });
    },
  });
  return (
    <Confirm title={mine ? "Leave this workspace?" : "Remove this member?"} deed={mine ? "Leave" : "Remove"}
      pending={remove.isPending} error={remove.error} onConfirm={() => remove.mutate()} onClose={onClose}>
      {mine ? "You" : <Words>{member.name}</Words>} will not see this workspace any more, and tokens made in it stop working at once.
    </Confirm>
  );
}
