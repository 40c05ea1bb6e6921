/** **Egress firewall**: whether what sandboxes may reach is enforced on this machine; every red state with cause, effect and fix. */
import { Alert, Badge, Group, Text } from "@mantine/core";
import { IconShieldCheck, IconShieldOff, IconShieldQuestion } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { api, take } from "../api/client";
import { effect, isGood } from "./posture";
import { sentence } from "./ProblemAlert";
import { Words } from "./Words";

export function useGateway() {
  return useQuery({ queryKey: ["gateway"], queryFn: () => take(api.GET("/api/v1/gateway")), refetchInterval: 5_000 });
}

/** The label alone. */
export function FirewallLabel() {
  const { data } = useGateway();
  if (!data) return null;
  const good = isGood(data);
  const Icon = good ? IconShieldCheck : data.state === "unknown" ? IconShieldQuestion : IconShieldOff;
  const tone = good ? "state-good" : data.state === "unknown" ? "state-plain" : "state-bad";
  return (
    <Group gap="xs">
      <Text size="sm" fw={600} span>Egress firewall</Text>
      <Badge variant="outline" size="lg" className={`state ${tone}`} leftSection={<Icon size={14} />}>{data.label ?? "Unknown"}</Badge>
      {good && data.enforcement ? <Text size="sm" c="dimmed" span>by {data.enforcement}</Text> : null}
    </Group>
  );
}

/** What is wrong, if something is. */
export function FirewallAlert() {
  const { data } = useGateway();
  if (!data) return null;
  const what = effect(data);
  if (what === null) return null;
  return (
    <Alert color={data.state === "unknown" ? "gray" : "red"} title={what} role={data.state === "unknown" ? "status" : "alert"}>
      {data.cause ? <Text size="sm"><Words most={600}>{sentence(data.cause)}</Words></Text> : null}
      {data.hint ? <Text size="sm"><Words most={600}>{sentence(data.hint)}</Words></Text> : null}
    </Alert>
  );
}
