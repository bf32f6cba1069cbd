/** Prints what happened, and ends a sample with status 1 when it is not what was to be shown. */
final class Say {
  private Say() {}

  static void claim(String what, boolean holds) {
    if (!holds) throw new AssertionError("this should be so, and is not: " + what);
    System.out.println(what);
  }
}
