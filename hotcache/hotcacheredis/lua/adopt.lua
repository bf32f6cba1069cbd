-- Begins a generation if the server is another one than that which stored the header, or has been started since: it may
-- have been set back to what it was a while ago. See Node.load for how this comes before everything else.

if life ~= living() then
  begin()
  doubt()
end
return header()
