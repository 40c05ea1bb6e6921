/** A change of a policy in git as a branch of its own, for somebody to merge there. */
import { Alert, Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useState, type SubmitEvent } from "react";
import { api, take, wrongField } from "../api/client";
import { ProblemAlert } from "../ui/ProblemAlert";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import type { Choice } from "./sources";

interface Props {
  choice: Choice;
  /** The file's new text. */
  text: string;
  /** What it may be called. */
  title: string;
}

export function Propose({ choice, text, title: suggested }: Props) {
  const workspace = useWorkspaceId();
  const [title, setTitle] = useState(suggested);
  const propose = useMutation({
    mutationFn: (proposed: string) => take(api.POST("/api/v1/workspaces/{workspace}/policies/proposals", { params: { path: { workspace } }, body: { source: choice.source, file: choice.file, text: proposed, title: title.trim() } })),
  });
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    propose.mutate(text);
  };
  // what was said about a text is said about no other
  const isOfText = propose.variables === text;
  const proposed = propose.data ? (
    <Alert color={isOfText ? "green" : "gray"} role="status" title={isOfText ? "Proposed" : "An earlier text was proposed"}>
      <Text size="sm">Branch <span className="mono"><Words>{propose.data.branch}</Words></span> has commit <span className="mono">{propose.data.commit.slice(0, 12)}</span> on top of <span className="mono">{propose.data.base.slice(0, 12)}</span>. It is in force once somebody has merged it.</Text>
    </Alert>
  ) : null;
  if (proposed && isOfText) return proposed;
  const error = isOfText ? propose.error : null;
  return (
    <form onSubmit={submit}>
      <Stack gap="xs">
        {proposed}
        <TextInput label="What the change is for" description="The first line of the commit" required maxLength={150} value={title} error={wrongField(error, "title")} onChange={(event) => setTitle(event.currentTarget.value)} />
        <ProblemAlert error={error} shown={["title"]} />
        <Group><Button type="submit" variant="default" loading={propose.isPending}>Propose as a branch</Button></Group>
      </Stack>
    </form>
  );
}
