/** An address that leads nowhere here. */
import { Link } from "@tanstack/react-router";
import { Empty } from "../ui/Empty";
import { Page } from "../ui/Page";

export function NotFoundPage() {
  return (
    <Page title="Not found">
      <Empty title="There is no such page">
        It may have been removed, or it is in a workspace that you are not in. <Link to="/">Go to the start</Link>
      </Empty>
    </Page>
  );
}
