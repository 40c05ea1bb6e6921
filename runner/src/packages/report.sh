# What the package managers of an image say about where they fetch from: one line `tool<TAB>URL` each.
#
# Runs inside the image, without a network, as an ordinary user. Names no host itself: a default is what the tool
# reports as its default. Asks only tools that the image has. POSIX sh; without grep or sed it simply reports nothing.
# What it prints is judged by the runner, which trusts none of it.
export LC_ALL=C NO_COLOR=1 CI=1
cd /tmp 2> /dev/null || cd /

has() { command -v "$1" > /dev/null 2>&1; }

# A tool that hangs must not keep the others from being asked.
ask() { if has timeout; then timeout 8 "$@"; else "$@"; fi 2> /dev/null < /dev/null; }

# Every URL in what is read, on behalf of a tool.
urls() { grep -Eo "https?://[^][:space:]\"'<>\`,;|(){}[]+" | sed "s|^|$1	|"; }

# without --no-release-info apt leaves out what was never downloaded
if has apt-get; then ask apt-get indextargets --no-release-info --format '$(REPO_URI)' | sort -u | urls apt; fi
if has apk; then grep -v '^ *#' /etc/apk/repositories 2> /dev/null | urls apk; fi
if has dnf || has yum; then
    grep -Ehi '^ *(baseurl|mirrorlist|metalink) *=' /etc/yum.repos.d/*.repo 2> /dev/null | urls dnf
fi

if has pip || has pip3; then
    pip=pip
    has pip || pip=pip3
    # `--help` shows the index in force as its default; the settings have the extra ones
    in_force=$(COLUMNS=500 ask "$pip" install --help | grep -e '--index-url <' | grep -v -e '--extra' | urls pip)
    printf '%s\n' "$in_force" | grep .
    COLUMNS=500 ask "$pip" config list | grep -E '\.(extra-)?index-url=|\.find-links=' | urls pip
    # the built-in index keeps files on a host of its own
    built_in='from pip._internal.models.index import PyPI as i; print(i.simple_url); print("https://" + i.file_storage_domain)'
    for python in python3 python; do
        has "$python" || continue
        reported=$(ask "$python" -c "$built_in") || continue
        case "$in_force" in
            *"$(printf '%s\n' "$reported" | head -n 1 | sed 's|/*$||')"*) printf '%s\n' "$reported" | urls pip ;;
        esac
        break
    done
fi
if has uv; then ask uv pip install --help | grep -i -A 4 -e '--default-index' | urls uv; fi

if has npm; then
    ask npm config get registry | urls npm
    # scopes may have registries of their own
    ask npm config ls | grep ':registry' | urls npm
fi
if has pnpm; then ask pnpm config get registry | urls pnpm; fi
if has yarn; then
    ask yarn config get registry | urls yarn
    ask yarn config get npmRegistryServer | urls yarn
fi

if has cargo; then
    for config in "${CARGO_HOME:-$HOME/.cargo}/config.toml" "${CARGO_HOME:-$HOME/.cargo}/config"; do
        grep -E '^ *(registry|index|local-registry|replace-with) *=' "$config" 2> /dev/null | urls cargo
    done
    # cargo prints no default; it names the index that it cannot reach (and learns where crates are only from that index)
    trial=$(mktemp -d 2> /dev/null) && mkdir "$trial/src" && : > "$trial/src/lib.rs" &&
        printf '[package]\nname = "a"\nversion = "0.0.0"\n[dependencies]\nlog = "*"\n' > "$trial/Cargo.toml" &&
        cd "$trial" && ask env CARGO_NET_RETRY=0 sh -c 'exec cargo generate-lockfile 2>&1' |
        grep -E 'download|index|registry' | urls cargo
    cd /tmp && rm -rf "$trial"
fi

if has go; then
    ask go env GOPROXY | urls go
    # `NAME`, `NAME+KEY` or `NAME+KEY URL`
    database=$(ask go env GOSUMDB)
    case "$database" in
        '' | off) ;;
        *://*) printf '%s\n' "$database" | urls go ;;
        *) printf 'https://%s\n' "${database%%[+ ]*}" | urls go ;;
    esac
fi

if has gem; then ask gem sources | urls gem; fi
if has composer; then ask composer config --global --list | grep -E 'repositories.*url' | urls composer; fi
exit 0
