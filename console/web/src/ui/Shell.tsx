/** What stands around every page: the way past it for keyboards, navigation, workspace, scheme, whoever is signed in. */
import { AppShell, Burger, Group } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { Outlet, useParams, useRouterState } from "@tanstack/react-router";
import { useEffect } from "react";
import { useWorkspaces } from "../api/session";
import { AccountMenu } from "./AccountMenu";
import { Mark } from "./Mark";
import { Navigation } from "./Navigation";
import { rememberWorkspace, usualWorkspace } from "./workspace";

export function Shell() {
  const [opened, menu] = useDisclosure(false);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const { close } = menu;
  useEffect(close, [path, close]);
  const { workspace: named } = useParams({ strict: false });
  const workspaces = useWorkspaces();
  const current = named ?? usualWorkspace(workspaces.data ?? []);
  useEffect(() => {
    if (named !== undefined) rememberWorkspace(named);
  }, [named]);
  return (
    <>
      <a href="#main" className="skip-link">Skip to the content</a>
      <AppShell header={{ height: 56 }} navbar={{ width: 220, breakpoint: "sm", collapsed: { mobile: !opened } }} padding="md">
        <AppShell.Header>
          <Group h="100%" px="md" justify="space-between" wrap="nowrap">
            <Group gap="sm" wrap="nowrap">
              <Burger opened={opened} onClick={menu.toggle} hiddenFrom="sm" size="sm" aria-label={opened ? "Close the navigation" : "Open the navigation"} aria-expanded={opened} />
              <Mark />
            </Group>
            <AccountMenu />
          </Group>
        </AppShell.Header>
        <AppShell.Navbar p="sm" aria-label="Pages">
          <Navigation workspaces={workspaces.data ?? []} current={current} />
        </AppShell.Navbar>
        <AppShell.Main id="main" tabIndex={-1}>
          <Outlet />
        </AppShell.Main>
      </AppShell>
    </>
  );
}
