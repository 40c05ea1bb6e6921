/** Whoever is signed in: the scheme of colours, settings, signing out. */
import { Button, Menu, Text, useMantineColorScheme } from "@mantine/core";
import { IconDeviceDesktop, IconLogout, IconMoon, IconSettings, IconSun, IconUser } from "@tabler/icons-react";
import { useNavigate } from "@tanstack/react-router";
import { useSelf, useSignOut } from "../api/session";
import { Words } from "./Words";

export function AccountMenu() {
  const self = useSelf();
  const signOut = useSignOut("here");
  const navigate = useNavigate();
  const { colorScheme, setColorScheme } = useMantineColorScheme();
  const schemes = [
    { key: "light", label: "Light", icon: <IconSun size={16} /> },
    { key: "dark", label: "Dark", icon: <IconMoon size={16} /> },
    { key: "auto", label: "As the system", icon: <IconDeviceDesktop size={16} /> },
  ] as const;
  return (
    <Menu position="bottom-end" width={240} withinPortal>
      <Menu.Target>
        <Button variant="subtle" color="gray" leftSection={<IconUser size={18} />} className="account-button">
          <Words most={40}>{self.name}</Words>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label><Words most={60}>{self.email}</Words></Menu.Label>
        <Menu.Item leftSection={<IconSettings size={16} />} onClick={() => void navigate({ to: "/account" })}>Settings</Menu.Item>
        <Menu.Divider />
        <Menu.Label>Colours</Menu.Label>
        {schemes.map((scheme) => (
          <Menu.Item key={scheme.key} leftSection={scheme.icon} onClick={() => setColorScheme(scheme.key)}
            rightSection={colorScheme === scheme.key ? <Text size="xs">chosen</Text> : null}>
            {scheme.label}
          </Menu.Item>
        ))}
        <Menu.Divider />
        <Menu.Item leftSection={<IconLogout size={16} />} onClick={() => signOut.mutate()}>Sign out</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
