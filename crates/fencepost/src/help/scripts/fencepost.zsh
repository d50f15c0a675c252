#compdef fencepost
# zsh completion for fencepost. Install: fencepost completions zsh > a directory of $fpath, as _fencepost
_fencepost() {
    local -a candidates
    local candidate about
    while IFS=$'\t' read -r candidate about; do
        candidates+=("${candidate//:/\\:}${about:+:$about}")
    done < <("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    if (( $#candidates )); then
        _describe -V 'fencepost' candidates
    else
        _default
    fi
}
if [[ "$funcstack[1]" = "_fencepost" ]]; then
    _fencepost "$@"
else
    compdef _fencepost fencepost
fi
