# PowerShell completion for fencepost. Install: add the output of `fencepost completions powershell` to $PROFILE
Register-ArgumentCompleter -Native -CommandName fencepost -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $words = @($commandAst.CommandElements | Select-Object -Skip 1 |
        Where-Object { $_.Extent.EndOffset -le $cursorPosition } | ForEach-Object { $_.ToString() })
    # PowerShell drops empty arguments of programs, so a new word is a flag.
    $new = @()
    if ($wordToComplete -eq '') { $new = @('--new-word') }
    & fencepost __complete @new -- @words 2>$null | ForEach-Object {
        $candidate, $about = $_ -split "`t", 2
        if (-not $about) { $about = $candidate }
        [System.Management.Automation.CompletionResult]::new($candidate, $candidate, 'ParameterValue', $about)
    }
}
