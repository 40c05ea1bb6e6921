/** The parts of a job's page: what it runs, what it may reach, what it may use, when it runs. Holds a draft, judges nothing. */
import { Grid, Group, MultiSelect, Paper, Radio, SegmentedControl, Select, Stack, Switch, TagsInput, Text, Textarea, TextInput, Title } from "@mantine/core";
import { useId, type ReactNode } from "react";
import type { Draft } from "./spec";

export interface FormProps {
  draft: Draft;
  set: (change: Partial<Draft>) => void;
  /** What the console says is wrong with a field of the specification. */
  wrong: (field: string) => string | undefined;
}

export function Part({ title, about, children }: { title: string; about?: string; children: ReactNode }) {
  const id = useId();
  return (
    <Paper withBorder p="md" component="section" aria-labelledby={id}>
      <Stack gap="sm">
        <div>
          <Title order={2} size="h4" id={id}>{title}</Title>
          {about ? <Text size="sm" c="dimmed">{about}</Text> : null}
        </div>
        {children}
      </Stack>
    </Paper>
  );
}

export function What({ draft, set, wrong }: FormProps) {
  return (
    <Part title="What it runs">
      <TextInput label="Name" required maxLength={100} value={draft.name} error={wrong("name")} onChange={(event) => set({ name: event.currentTarget.value })} />
      <TextInput label="Description" value={draft.description} error={wrong("description")} onChange={(event) => set({ description: event.currentTarget.value })} />
      <div>
        <SegmentedControl aria-label="How the command is written" value={draft.shell ? "shell" : "words"} onChange={(value) => set({ shell: value === "shell" })}
          data={[{ value: "shell", label: "Shell script" }, { value: "words", label: "Program and arguments" }]} mb="xs" />
        <Textarea label="Command" description={draft.shell ? "Run by /bin/sh. Empty: what the image itself runs." : "One on each line, the program first. Empty: what the image itself runs."}
          autosize minRows={3} maxRows={20} classNames={{ input: "mono" }} spellCheck={false} value={draft.command} error={wrong("command")}
          onChange={(event) => set({ command: event.currentTarget.value })} />
      </div>
      <Grid>
        <Grid.Col span={{ base: 12, sm: 6 }}>
          <TextInput label="Image" description="Empty: the sandbox image that comes with Sallyport" value={draft.image} error={wrong("image")} onChange={(event) => set({ image: event.currentTarget.value })} />
        </Grid.Col>
        <Grid.Col span={{ base: 12, sm: 6 }}>
          <TextInput label="Working directory" description="Empty: the image's" value={draft.workdir} error={wrong("workdir")} onChange={(event) => set({ workdir: event.currentTarget.value })} />
        </Grid.Col>
      </Grid>
      <Textarea label="Environment" description="NAME=value, one on each line. Not for secrets: everybody in the workspace reads it." autosize minRows={2} maxRows={12}
        classNames={{ input: "mono" }} spellCheck={false} value={draft.env} error={wrong("env")} onChange={(event) => set({ env: event.currentTarget.value })} />
      <Switch label="Give what triggers a run to the command as its standard input" checked={draft.input} onChange={(event) => set({ input: event.currentTarget.checked })} />
      <Switch label="Run as root" description="Off: as the user agent, without capabilities" checked={draft.root} onChange={(event) => set({ root: event.currentTarget.checked })} />
    </Part>
  );
}

export function Network({ draft, set, wrong, editor, children }: FormProps & { editor: ReactNode; children?: ReactNode }) {
  return (
    <Part title="Network">
      <Radio.Group label="Network" description="Whatever is chosen, metadata services, other runs and Sallyport itself stay out of reach." value={draft.mode} error={wrong("network.mode")}
        onChange={(mode) => set({ mode: mode })}>
        <Group mt="xs">
          <Radio value="internet" label="Internet access" />
          <Radio value="domains" label="Allowed domains only" />
          <Radio value="none" label="No network" />
        </Group>
      </Radio.Group>
      <Switch label="Allow private network" description="Private addresses, and this host's own, too" disabled={draft.mode === "none"} checked={draft.mode !== "none" && draft.allowPrivate}
        error={wrong("network.allow_private")} onChange={(event) => set({ allowPrivate: event.currentTarget.checked })} />
      {draft.mode === "none" ? null : (
        <Switch label="Write a policy" description="Ports, methods, paths and denials, instead of names alone" checked={draft.ownPolicy} onChange={(event) => set({ ownPolicy: event.currentTarget.checked })} />
      )}
      {draft.mode === "domains" && !draft.ownPolicy ? (
        <TagsInput label="Allowed domains" description="Such as example.com or *.example.com; Enter adds one" value={draft.domains} error={wrong("network.domains")} onChange={(domains) => set({ domains })}
          clearable={false} splitChars={[",", " ", "\n"]} />
      ) : null}
      {draft.mode !== "none" && draft.ownPolicy ? (
        <div>
          <Text size="sm" fw={500} mb={4}>Policy</Text>
          {editor}
          {wrong("network.policy") ? <Text size="xs" c="var(--mantine-color-error)" className="wrap">{wrong("network.policy")}</Text> : null}
        </div>
      ) : null}
      {children}
    </Part>
  );
}

export function Limits({ draft, set, wrong }: FormProps) {
  const field = (label: string, description: string, key: "timeout" | "memory" | "cpu" | "pids", name: string) => (
    <Grid.Col span={{ base: 12, xs: 6, md: 3 }}>
      <TextInput label={label} description={description} inputMode="decimal" value={draft[key]} error={wrong(`limits.${name}`)} onChange={(event) => set({ [key]: event.currentTarget.value })} />
    </Grid.Col>
  );
  return (
    <Part title="Limits" about="Empty: 15 minutes, 1024 MiB, one CPU, 256 processes.">
      <Grid>
        {field("Timeout", "Seconds", "timeout", "timeout_seconds")}
        {field("Memory", "MiB, without swap", "memory", "memory_mib")}
        {field("CPUs", "Such as 0.5", "cpu", "cpu_millis")}
        {field("Processes", "And threads", "pids", "pids")}
      </Grid>
      <Select label="Isolation" value={draft.isolation} allowDeselect={false} error={wrong("isolation")} onChange={(value) => set({ isolation: (value ?? "") })}
        data={[{ value: "", label: "As the runner is set" }, { value: "auto", label: "Strongest that the host has" }, { value: "hardened", label: "Hardened container (runc, crun)" }, { value: "gvisor", label: "gVisor" }]} />
    </Part>
  );
}

const ZONES = Intl.supportedValuesOf("timeZone");

export function When({ draft, set, wrong }: FormProps) {
  return (
    <Part title="When it runs">
      <Switch label="On a schedule" checked={draft.scheduled} onChange={(event) => set({ scheduled: event.currentTarget.checked })} />
      {draft.scheduled ? (
        <Grid>
          <Grid.Col span={{ base: 12, sm: 4 }}>
            <TextInput label="Cron" description="Minute, hour, day, month, weekday" placeholder="30 4 * * MON-FRI" required classNames={{ input: "mono" }} value={draft.cron} error={wrong("schedule.cron")} onChange={(event) => set({ cron: event.currentTarget.value })} />
          </Grid.Col>
          <Grid.Col span={{ base: 12, sm: 4 }}>
            <Select label="Time zone" description="Its summer time counts" searchable allowDeselect={false} data={["UTC", ...ZONES.filter((zone) => zone !== "UTC")]} limit={60} value={draft.timezone} error={wrong("schedule.timezone")} onChange={(zone) => set({ timezone: zone ?? "UTC" })} />
          </Grid.Col>
          <Grid.Col span={{ base: 12, sm: 4 }}>
            <Select label="Missed times" description="While no console ran" allowDeselect={false} value={draft.catchUp} onChange={(value) => set({ catchUp: (value ?? "once") })}
              data={[{ value: "once", label: "One run for all of them" }, { value: "never", label: "No run" }]} />
          </Grid.Col>
        </Grid>
      ) : null}
      <Grid>
        <Grid.Col span={{ base: 12, sm: 4 }}>
          <Select label="If a run is there already" allowDeselect={false} value={draft.rule} error={wrong("overlap.rule")} onChange={(value) => set({ rule: (value ?? "queue") })}
            data={[{ value: "queue", label: "Wait for it" }, { value: "skip", label: "Skip" }, { value: "parallel", label: "Run beside it" }]} />
        </Grid.Col>
        {draft.rule === "parallel" ? (
          <Grid.Col span={{ base: 12, sm: 4 }}>
            <TextInput label="At most at once" inputMode="numeric" placeholder="10" value={draft.most} error={wrong("overlap.most")} onChange={(event) => set({ most: event.currentTarget.value })} />
          </Grid.Col>
        ) : null}
        <Grid.Col span={{ base: 12, sm: 4 }}>
          <TextInput label="Group" description="Jobs of one group count as one" value={draft.group} error={wrong("overlap.group")} onChange={(event) => set({ group: event.currentTarget.value })} />
        </Grid.Col>
      </Grid>
      <Grid>
        <Grid.Col span={{ base: 12, sm: 4 }}>
          <TextInput label="Further attempts" inputMode="numeric" value={draft.retries} error={wrong("retry.most")} onChange={(event) => set({ retries: event.currentTarget.value })} />
        </Grid.Col>
        {draft.retries.trim() === "0" || draft.retries.trim() === "" ? null : (
          <>
            <Grid.Col span={{ base: 12, sm: 4 }}>
              <MultiSelect label="After a run that" value={draft.retryOn} error={wrong("retry.on")} onChange={(on) => set({ retryOn: on })}
                data={[{ value: "failed", label: "failed" }, { value: "timed_out", label: "took too long" }, { value: "lost", label: "was lost" }]} />
            </Grid.Col>
            <Grid.Col span={{ base: 12, sm: 4 }}>
              <TextInput label="Seconds before the next" description="Twice as long each time" inputMode="numeric" value={draft.retryWait} error={wrong("retry.wait_seconds")} onChange={(event) => set({ retryWait: event.currentTarget.value })} />
            </Grid.Col>
          </>
        )}
      </Grid>
    </Part>
  );
}
