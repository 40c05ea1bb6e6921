/** The policies that are in force from git: which commit, whether it is all in order, each file to open. */
import { Alert, Badge, Button, Group, List, Stack, Text, Title } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { DataTable, type ColumnDef } from "../ui/DataTable";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { ProblemAlert, sentence } from "../ui/ProblemAlert";
import { visible } from "../ui/words";
import { When } from "../ui/When";
import { Words } from "../ui/Words";
import { useWorkspaceId } from "../ui/workspace";
import { inForce, useSources, type Choice, type Source } from "./sources";

interface Props {
  /** A file was opened, with its text as it is in force. */
  onOpen: (choice: Choice, text: string) => void;
}

export function InGit({ onOpen }: Props) {
  const sources = useSources(useWorkspaceId());
  return (
    <Loaded query={sources}>
      {(data) => {
        if (data.unknown) return <Text size="sm" c="dimmed">{sentence(data.unknown)}</Text>;
        if (data.items.length === 0) return <Empty title="No policies in git">Name a repository under gateway.sources in config.yml, and its policies stand here with the commit that they are in force from.</Empty>;
        return <Stack>{data.items.map((source) => <OneSource key={source.name} source={source} onOpen={onOpen} />)}</Stack>;
      }}
    </Loaded>
  );
}

function OneSource({ source, onOpen }: Props & { source: Source }) {
  const workspace = useWorkspaceId();
  const queries = useQueryClient();
  const open = useMutation({
    mutationFn: async (choice: Choice) => ({ choice, found: await queries.query({ ...inForce(workspace, choice.source, choice.policy), staleTime: 0 }) }),
    onSuccess: ({ choice, found }) => onOpen(choice, found.text),
  });
  const columns: ColumnDef<Source["policies"][number]>[] = [
    { header: "Policy", cell: ({ row }) => <span className="mono"><Words>{row.original.policy}</Words></span> },
    { header: "File", cell: ({ row }) => <span className="mono"><Words>{row.original.file}</Words></span> },
    { header: "Actions", cell: ({ row }) => <Button size="compact-sm" variant="default" aria-label={`Open ${visible(row.original.policy)}`} loading={open.isPending && open.variables.file === row.original.file} onClick={() => open.mutate({ source: source.name, ...row.original })}>Open</Button> },
  ];
  return (
    <Stack gap="xs">
      <Group gap="xs">
        <Title order={3} size="h5"><Words>{source.name}</Words></Title>
        {source.problem ? <Badge variant="outline" className="state state-bad">not up to date</Badge> : source.stale ? <Badge variant="outline" className="state state-live">not looked at lately</Badge> : <Badge variant="outline" className="state state-good">in force</Badge>}
      </Group>
      <Text size="sm" component="div">
        Branch <span className="mono"><Words>{source.branch}</Words></span>{source.commit ? <>, commit <span className="mono" title={source.commit}>{source.commit.slice(0, 12)}</span>, in force since <When at={source.loaded_at} /></> : ", nothing in force yet"}
        {source.signer ? <>, signed by <Words>{source.signer}</Words></> : null}; looked at <When at={source.checked_at} />.
      </Text>
      {source.problem ? (
        <Alert color="red" title="What the remote has is not in force">
          <Words most={600}>{sentence(source.problem)}</Words>
          <List size="sm">{source.mistakes.slice(0, 20).map((mistake) => <List.Item key={mistake}><span className="mono"><Words most={400}>{mistake}</Words></span></List.Item>)}</List>
        </Alert>
      ) : null}
      <ProblemAlert error={open.error} />
      {source.policies.length === 0 ? null : <DataTable label={`Policies of ${visible(source.name)}`} columns={columns} rows={source.policies} rowId={(row) => row.file} />}
    </Stack>
  );
}
