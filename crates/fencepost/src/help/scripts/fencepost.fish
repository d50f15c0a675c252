# fish completion for fencepost. Install: fencepost completions fish > ~/.config/fish/completions/fencepost.fish
function __fencepost_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    set -l candidates (command $words[1] __complete -- $words[2..-1] "$current" 2>/dev/null)
    if test (count $candidates) -gt 0
        printf '%s\n' $candidates
    else
        __fish_complete_path "$current"
    end
end
complete -c fencepost -f -a '(__fencepost_complete)'
