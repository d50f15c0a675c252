# bash completion for fencepost. Install: fencepost completions bash > ~/.local/share/bash-completion/completions/fencepost
_fencepost() {
    local line=${COMP_LINE:0:COMP_POINT} words current prefix candidate about
    local IFS=$' \t\n'
    read -r -a words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=("")
    current=${words[${#words[@]} - 1]}
    # bash replaces only what follows the last colon or equals sign.
    prefix=${current%"${current##*[=:]}"}
    COMPREPLY=()
    while IFS=$'\t' read -r candidate about; do
        COMPREPLY+=("${candidate#"$prefix"}")
    done < <("$1" __complete -- "${words[@]:1}" 2>/dev/null)
}
complete -o default -o bashdefault -F _fencepost fencepost
