//! Containers as an engine lists them: only what is asked of them, since Podman lists states that Docker has no word for
//! (`stopped`: ended, and not yet tidied up), and one such container must not hide the others.

use std::collections::HashMap;

use bollard::errors::Error;
use bollard::models::ContainerSummary;
use serde::Deserialize;

/// One line of the list.
#[derive(PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Listed {
    pub id: Option<String>,
    pub names: Option<Vec<String>>,
    pub labels: Option<HashMap<String, String>>,
}

/// The answer to a list, also one that says more than the client knows.
pub(super) fn listed(answer: Result<Vec<ContainerSummary>, Error>) -> Result<Vec<Listed>, Error> {
    match answer {
        Ok(all) => Ok(all.into_iter().map(Listed::from).collect()),
        Err(Error::JsonDataError { contents, .. }) => Ok(serde_json::from_str(&contents)?),
        Err(error) => Err(error),
    }
}

impl From<ContainerSummary> for Listed {
    fn from(one: ContainerSummary) -> Self {
        Self {
            id: one.id,
            names: one.names,
            labels: one.labels,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(contents: &str) -> Result<Vec<ContainerSummary>, Error> {
        serde_json::from_str(contents).map_err(|error| Error::JsonDataError {
            message: error.to_string(),
            contents: contents.to_owned(),
            column: error.column(),
        })
    }

    #[test]
    fn a_state_that_docker_has_no_word_for_hides_no_container() {
        for (state, known) in [("running", true), ("stopped", false), ("configured", false)] {
            let contents = format!(
                r#"[{{"Id":"a1","Names":["/n"],"Labels":{{"k":"v"}},"State":"{state}","Mounts":[]}},{{"Id":"b2","Labels":null}}]"#
            );
            let answer = answer(&contents);
            assert_eq!(answer.is_ok(), known, "{state}");
            let found = listed(answer).unwrap();
            assert_eq!(found.len(), 2, "{state}");
            assert_eq!(found[0].id.as_deref(), Some("a1"));
            assert_eq!(found[0].names, Some(vec!["/n".to_owned()]));
            assert_eq!(found[0].labels.as_ref().unwrap()["k"], "v");
        }
        assert!(listed(answer("[{")).is_err());
    }
}
