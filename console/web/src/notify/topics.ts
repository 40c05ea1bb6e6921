/** What a workspace tells somebody about. */
export const TOPICS = ["run.failed", "run.succeeded"];

const NAMES = new Map([["run.failed", "a run failed"], ["run.succeeded", "a run succeeded"], ["test", "a test"]]);

/** In words; a topic to come by its own name. */
export function topicName(topic: string): string {
  return NAMES.get(topic) ?? topic;
}
