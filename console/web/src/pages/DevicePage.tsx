/** Lets a program in: its code is typed, what asks from where is seen, and only then is there a yes. */
import { Alert, Button, Group, NumberInput, Paper, Select, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField, type Schemas } from "../api/client";
import { useWorkspaces } from "../api/session";
import { Page } from "../ui/Page";
import { ProblemAlert } from "../ui/ProblemAlert";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { usualWorkspace } from "../ui/workspace";

type Asks = Schemas["CodeView"];

export function DevicePage() {
  const [code, setCode] = useState("");
  const [done, setDone] = useState<"approved" | "refused" | null>(null);
  const look = useMutation({ mutationFn: () => take(api.POST("/api/v1/codes/look", { body: { code } })) });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    look.mutate();
  };
  if (done !== null) {
    return (
      <Page title="Let a program in">
        <Alert color={done === "approved" ? "teal" : "gray"} title={done === "approved" ? "It is let in" : "It was refused"} role="status">
          {done === "approved" ? "Go back to it; this page can be closed. Tokens lists what it has, and revokes it." : "It has got nothing."}
        </Alert>
      </Page>
    );
  }
  return (
    <Page title="Let a program in" about="A program that asks to be let in shows a code. Type it only if you started that program yourself.">
      {look.data ? <Decide code={code} asks={look.data} onDone={setDone} /> : (
        <Paper withBorder p="md" maw={460}>
          <form onSubmit={submit}>
            <Stack>
              <TextInput label="Code" description="Eight letters, as your program shows them" required autoComplete="off" autoCapitalize="characters" spellCheck={false}
                value={code} error={wrongField(look.error, "code")} onChange={(event) => setCode(event.currentTarget.value)} />
              <ProblemAlert error={look.error} shown={["code"]} />
              <Group justify="flex-end"><Button type="submit" loading={look.isPending}>See what asks</Button></Group>
            </Stack>
          </form>
        </Paper>
      )}
    </Page>
  );
}

function Decide({ code, asks, onDone }: { code: string; asks: Asks; onDone: (what: "approved" | "refused") => void }) {
  const workspaces = useWorkspaces().data ?? [];
  const [chosen, setChosen] = useState<string | null>(null);
  const workspace = chosen ?? usualWorkspace(workspaces) ?? "";
  const [scope, setScope] = useState(asks.scope);
  const [days, setDays] = useState<number | string>(asks.expires_in_days ?? 90);
  const approve = useMutation({
    mutationFn: () => take(api.POST("/api/v1/workspaces/{workspace}/codes", {
      params: { path: { workspace } },
      body: { code, scope, expires_in_days: typeof days === "number" ? days : null },
    })),
    onSuccess: () => onDone("approved"),
  });
  const refuse = useMutation({
    mutationFn: () => take(api.POST("/api/v1/codes/refuse", { body: { code } })),
    onSuccess: () => onDone("refused"),
  });
  return (
    <Paper withBorder p="md" maw={560}>
      <Stack>
        <Text>
          A program that calls itself <Words>{asks.name}</Words> (<Words>{asks.agent}</Words>) asks from the address <Words>{asks.address}</Words>, <When at={asks.created_at} />.
          It will act with your role.
        </Text>
        <Select label="Workspace" allowDeselect={false} value={workspace} onChange={setChosen}
          data={workspaces.map((one) => ({ value: one.id, label: one.name }))} />
        <Select label="It may" allowDeselect={false} value={scope} error={wrongField(approve.error, "scope")} onChange={(value) => setScope(value ?? "read")}
          data={asks.scope === "write" ? [{ value: "read", label: "read" }, { value: "write", label: "read and write" }] : [{ value: "read", label: "read" }]} />
        <NumberInput label="Days until it ends" description="Empty: when it is revoked" min={1} max={3650} allowDecimal={false} value={days}
          error={wrongField(approve.error, "expires_in_days")} onChange={setDays} />
        <ProblemAlert error={approve.error ?? refuse.error} shown={["scope", "expires_in_days"]} />
        <Group justify="flex-end">
          <Button variant="default" loading={refuse.isPending} onClick={() => refuse.mutate()}>Refuse</Button>
          <Button loading={approve.isPending} disabled={workspace === ""} onClick={() => approve.mutate()}>Let it in</Button>
        </Group>
      </Stack>
    </Paper>
  );
}
