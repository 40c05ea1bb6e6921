/** Who is told about a job's runs: as the workspace asks, or the job's own choice. */
import { Checkbox, Group, Radio, Stack, TagsInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { api, take } from "../api/client";
import { atLeast, useWorkspaces } from "../api/session";
import { useWorkspaceId } from "../ui/workspace";
import { Part, type FormProps } from "./JobForm";
import type { NotifyOn } from "./spec";

const ON: { value: NotifyOn; label: string }[] = [
  { value: "failed", label: "a run failed" },
  { value: "succeeded", label: "a run succeeded" },
  { value: "denied", label: "a name was denied that was not before" },
];

export function Notify({ draft, set, wrong }: FormProps) {
  const workspace = useWorkspaceId();
  const role = useWorkspaces().data?.find((one) => one.id === workspace)?.role;
  // only who manages them may list them; others know the names that they were told
  const names = useQuery({
    queryKey: ["notifications", workspace, "names"],
    queryFn: async () => (await take(api.GET("/api/v1/workspaces/{workspace}/notifications", { params: { path: { workspace } } }))).items.map((one) => one.name),
    enabled: atLeast(role, "admin"),
  });
  return (
    <Part title="Who is told">
      <Radio.Group label="About runs of this job" value={draft.notify} onChange={(notify) => set({ notify: notify === "own" ? "own" : "usual" })}>
        <Group mt="xs">
          <Radio value="usual" label="Whoever asks for it in this workspace" />
          <Radio value="own" label="Only these" />
        </Group>
      </Radio.Group>
      {draft.notify === "own" ? (
        <Stack gap="sm">
          <TagsInput label="Notifications" description="By their names; none: nobody is told" data={[...new Set(names.data ?? [])]} value={draft.notifyTo} error={wrong("notify.to")} onChange={(notifyTo) => set({ notifyTo })} />
          <Checkbox.Group label="When" value={draft.notifyOn} onChange={(on) => set({ notifyOn: ON.map(({ value }) => value).filter((value) => on.includes(value)) })}>
            <Group gap="md" mt="xs">{ON.map(({ value, label }) => <Checkbox key={value} value={value} label={label} />)}</Group>
          </Checkbox.Group>
        </Stack>
      ) : null}
    </Part>
  );
}
