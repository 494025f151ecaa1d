# The formula of a tap. `packaging/build` fills in version, address and checksum.
class Milepost < Formula
  desc "Transparent MCP proxy that adds progress to legacy servers"
  homepage "@REPOSITORY@"
  url "@REPOSITORY@/releases/download/v@VERSION@/milepost-@VERSION@-@TARGET@.tar.gz"
  sha256 "@SHA256@"
  license any_of: ["MIT", "Apache-2.0"]

  def install
    bin.install "milepost"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/milepost"
    zsh_completion.install "completions/_milepost"
    fish_completion.install "completions/milepost.fish"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/milepost --version")
    request = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert_equal request, pipe_output("#{bin}/milepost wrap -- cat", request + "\n").chomp
  end
end
