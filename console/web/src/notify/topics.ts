/** What a workspace tells somebody about. */
export const TOPICS = ["run.failed", "run.succeeded", "run.denied", "gateway.enforcement"];

const NAMES = new Map([["run.failed", "a run failed"], ["run.succeeded", "a run succeeded"], ["run.denied", "a job was denied a name that it was not before"], ["gateway.enforcement", "the egress firewall is not enforced any more, or again"], ["test", "a test"]]);

/** In words; a topic to come by its own name. */
export function topicName(topic: string): string {
  return NAMES.get(topic) ?? topic;
}
