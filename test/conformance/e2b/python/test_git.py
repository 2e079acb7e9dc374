from e2b import CommandExitException
import pytest

from conftest import call


async def repository(flavor, path, user):
    git = flavor.sbx.git
    await call(git.init(path, initial_branch="main", user=user))
    await call(flavor.sbx.files.write(f"{path}/a.txt", "one\n", user=user))
    await call(git.add(path, user=user))
    await call(git.commit(path, "First", author_name="Ada", author_email="ada@example.com", user=user))
    return git


async def test_commit_status_and_branches(flavor, scratch, user):
    repo = f"{scratch}/repo"
    git = await repository(flavor, repo, user)
    status = await call(git.status(repo, user=user))
    assert (status.current_branch, status.is_clean) == ("main", True)
    await call(flavor.sbx.files.write(f"{repo}/b.txt", "two\n", user=user))
    status = await call(git.status(repo, user=user))
    assert [(f.name, f.status) for f in status.file_status] == [("b.txt", "untracked")]
    log = await flavor.run("git log --format='%an <%ae> %s'", cwd=repo, user=user)
    assert log.stdout == "Ada <ada@example.com> First\n"
    await call(git.create_branch(repo, "side", user=user))
    branches = await call(git.branches(repo, user=user))
    assert (sorted(branches.branches), branches.current_branch) == (["main", "side"], "side")
    await call(git.checkout_branch(repo, "main", user=user))
    await call(git.delete_branch(repo, "side", user=user))
    assert (await call(git.branches(repo, user=user))).branches == ["main"]


async def test_reset_and_restore(flavor, scratch, user):
    repo = f"{scratch}/repo"
    git = await repository(flavor, repo, user)
    files = flavor.sbx.files
    await call(files.write(f"{repo}/a.txt", "two\n", user=user))
    await call(git.restore(repo, paths=["a.txt"], user=user))
    assert await call(files.read(f"{repo}/a.txt", user=user)) == "one\n"
    await call(files.write(f"{repo}/a.txt", "three\n", user=user))
    await call(git.reset(repo, mode="hard", user=user))
    assert (await call(git.status(repo, user=user))).is_clean


async def test_clone_push_and_pull(flavor, scratch, user):
    git = await repository(flavor, f"{scratch}/one", user)
    url = f"file://{scratch}/hub"
    await call(git.init(f"{scratch}/hub", bare=True, initial_branch="main", user=user))
    await call(git.remote_add(f"{scratch}/one", "origin", url, user=user))
    assert await call(git.remote_get(f"{scratch}/one", "origin", user=user)) == url
    await call(git.push(f"{scratch}/one", remote="origin", branch="main", set_upstream=True, user=user))
    await call(git.clone(url, path=f"{scratch}/two", user=user))
    await call(flavor.sbx.files.write(f"{scratch}/one/a.txt", "two\n", user=user))
    await call(git.add(f"{scratch}/one", user=user))
    await call(git.commit(f"{scratch}/one", "Two", author_name="Ada", author_email="ada@example.com", user=user))
    await call(git.push(f"{scratch}/one", user=user))
    await call(git.pull(f"{scratch}/two", user=user))
    assert await call(flavor.sbx.files.read(f"{scratch}/two/a.txt", user=user)) == "two\n"


async def test_configuration(flavor, scratch, user):
    repo = f"{scratch}/repo"
    git = await repository(flavor, repo, user)
    await call(git.set_config("pull.rebase", "false", scope="local", path=repo, user=user))
    assert await call(git.get_config("pull.rebase", scope="local", path=repo, user=user)) == "false"
    await call(git.configure_user("Bob", "bob@example.com", scope="local", path=repo, user=user))
    assert await call(git.get_config("user.name", scope="local", path=repo, user=user)) == "Bob"


async def test_clone_of_nothing_fails(flavor, scratch):
    with pytest.raises(CommandExitException) as err:
        await call(flavor.sbx.git.clone(f"file://{scratch}/none", path=f"{scratch}/x"))
    assert err.value.exit_code == 128
