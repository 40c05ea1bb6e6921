/** The start: leads into the workspace that was used last here, or says that there is none. */
import { Navigate } from "@tanstack/react-router";
import { useWorkspaces } from "../api/session";
import { Empty } from "../ui/Empty";
import { Loaded } from "../ui/Loaded";
import { Page } from "../ui/Page";
import { usualWorkspace } from "../ui/workspace";

export function HomePage() {
  const workspaces = useWorkspaces();
  return (
    <Loaded query={workspaces}>
      {(list) => {
        const id = usualWorkspace(list);
        if (id !== undefined) return <Navigate to="/w/$workspace/now" params={{ workspace: id }} replace />;
        return (
          <Page title="No workspace">
            <Empty title="You are in no workspace">Somebody who administers one can add you by your email address.</Empty>
          </Page>
        );
      }}
    </Loaded>
  );
}
