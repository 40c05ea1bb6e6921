/** Text that others wrote, on one line, apart from the direction of what stands around it. */
import { shortened, visible } from "./words";

export function Words({ children, most = 300 }: { children: string; most?: number }) {
  return <bdi className="words">{visible(shortened(children, most))}</bdi>;
}
