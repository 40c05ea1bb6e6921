/** The hardening checklist: what of this instance is as it should be, and what to do about the rest. For administrators. */
import { Badge, List, Text, ThemeIcon } from "@mantine/core";
import { IconAlertTriangle, IconCheck, IconQuestionMark } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, take, type Schemas } from "../api/client";
import { useSelf } from "../api/session";
import { Loaded } from "./Loaded";
import { sentence } from "./ProblemAlert";
import { Words } from "./Words";

type Item = Schemas["CheckItem"];

function useChecklist(enabled: boolean) {
  return useQuery({ queryKey: ["checklist"], queryFn: () => take(api.GET("/api/v1/checklist")), refetchInterval: 30_000, enabled });
}

const LOOKS = {
  good: { word: "done", colour: "green", Icon: IconCheck },
  bad: { word: "to do", colour: "red", Icon: IconAlertTriangle },
  unknown: { word: "not known", colour: "gray", Icon: IconQuestionMark },
};

function look(state: string) {
  return state === "good" || state === "bad" ? LOOKS[state] : LOOKS.unknown;
}

/** What is to do stands first. */
const ORDER = ["bad", "unknown", "good"];

export function Checklist() {
  const checklist = useChecklist(true);
  return (
    <Loaded query={checklist}>
      {(data) => (
        <>
          <Text size="sm" role="status">{data.good} of {data.of} are as they should be.</Text>
          <List listStyleType="none" spacing="sm" aria-label="Checklist">
            {[...data.items].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state)).map((item) => <Row key={item.id} item={item} />)}
          </List>
        </>
      )}
    </Loaded>
  );
}

function Row({ item }: { item: Item }) {
  const { word, colour, Icon } = look(item.state);
  return (
    <List.Item icon={<ThemeIcon variant="light" color={colour} size="sm" radius="xl" aria-hidden><Icon size={14} /></ThemeIcon>} styles={{ itemWrapper: { alignItems: "flex-start" } }}>
      <Text size="sm" fw={600} component="div">{item.title} <Text span size="xs" c="dimmed">({word})</Text></Text>
      <Text size="sm" c="dimmed" component="div"><Words most={400}>{sentence(item.found)}</Words></Text>
      {item.fix ? <Text size="sm" component="div"><Words most={400}>{sentence(item.fix)}</Words></Text> : null}
    </List.Item>
  );
}

/** How much of it is done, with a way there; nothing for who can do nothing about it. */
export function ChecklistScore() {
  const admin = useSelf().instance_admin;
  const { data } = useChecklist(admin);
  if (!admin || !data) return null;
  const tone = data.good === data.of ? "state-good" : "state-live";
  return <Link to="/account" hash="checklist" className="link"><Badge variant="outline" size="lg" className={`state ${tone}`}>{`Checklist ${data.good} of ${data.of}`}</Badge></Link>;
}
