/** The pages of the workspace, of the instance for its administrators, and of oneself. */
import { NavLink, ScrollArea, Select, Stack, Text } from "@mantine/core";
import { IconActivity, IconBell, IconHistory, IconKey, IconListDetails, IconLock, IconPlayerPlay, IconServer, IconSettings, IconShieldCheck, IconUsers, IconUsersGroup } from "@tabler/icons-react";
import { Link, useNavigate, type LinkProps } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { atLeast, useSelf, type Workspace } from "../api/session";
import { visible } from "./words";

interface Props {
  workspaces: Workspace[];
  current: string | undefined;
}

export function Navigation({ workspaces, current }: Props) {
  const self = useSelf();
  const role = workspaces.find((workspace) => workspace.id === current)?.role;
  return (
    <ScrollArea flex={1}>
      <Stack gap="lg">
        {current === undefined ? null : (
          <Stack gap={2}>
            {workspaces.length > 1 ? <WorkspaceSelect workspaces={workspaces} current={current} /> : null}
            <Item to="/w/$workspace/now" params={{ workspace: current }} icon={<IconActivity size={18} />}>Now</Item>
            <Item to="/w/$workspace/runs" params={{ workspace: current }} icon={<IconPlayerPlay size={18} />}>Runs</Item>
            <Item to="/w/$workspace/jobs" params={{ workspace: current }} icon={<IconListDetails size={18} />}>Jobs</Item>
            <Item to="/w/$workspace/policies" params={{ workspace: current }} icon={<IconShieldCheck size={18} />}>Policies</Item>
            <Item to="/w/$workspace/secrets" params={{ workspace: current }} icon={<IconLock size={18} />}>Secrets</Item>
            <Item to="/w/$workspace/members" params={{ workspace: current }} icon={<IconUsersGroup size={18} />}>Members</Item>
            <Item to="/w/$workspace/tokens" params={{ workspace: current }} icon={<IconKey size={18} />}>Tokens</Item>
            {atLeast(role, "admin") ? (
              <>
                <Item to="/w/$workspace/notifications" params={{ workspace: current }} icon={<IconBell size={18} />}>Notifications</Item>
                <Item to="/w/$workspace/audit" params={{ workspace: current }} icon={<IconHistory size={18} />}>Audit</Item>
              </>
            ) : null}
          </Stack>
        )}
        {self.instance_admin ? (
          <Section title="Admin">
            <Item to="/admin/users" icon={<IconUsers size={18} />}>Users</Item>
            <Item to="/admin/runners" icon={<IconServer size={18} />}>Runners</Item>
            <Item to="/admin/audit" icon={<IconHistory size={18} />}>Audit of the instance</Item>
          </Section>
        ) : null}
        <Section title="You">
          <Item to="/account" icon={<IconSettings size={18} />}>Settings</Item>
        </Section>
      </Stack>
    </ScrollArea>
  );
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Stack gap={2}>
      <Text size="xs" c="dimmed" fw={600} px="sm">{title}</Text>
      {children}
    </Stack>
  );
}

function Item({ icon, children, ...link }: { icon: ReactNode; children: string } & Pick<LinkProps, "to" | "params">) {
  return (
    <Link {...link} className="nav-link" activeProps={{ "aria-current": "page" }}>
      {({ isActive }) => <NavLink component="span" label={children} leftSection={icon} active={isActive} />}
    </Link>
  );
}

function WorkspaceSelect({ workspaces, current }: { workspaces: Workspace[]; current: string }) {
  const navigate = useNavigate();
  return (
    <Select
      mb="xs"
      label="Workspace"
      allowDeselect={false}
      value={current}
      data={workspaces.map((workspace) => ({ value: workspace.id, label: visible(workspace.name) }))}
      onChange={(id) => {
        if (id !== null) void navigate({ to: "/w/$workspace/now", params: { workspace: id } });
      }}
    />
  );
}
